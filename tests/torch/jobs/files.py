# SPDX-License-Identifier: Apache-2.0
"""files.py profiler|recorder OUT, under torchrun: the files that PyTorch itself writes.
profiler   a trace a rank of 20 steps [STACK=0: without stacks; GZ=1: compressed]; the fault is model.py's
recorder   Flight Recorder's buffer, pickle and JSON, eight seconds after rank 2 left its 41st all_reduce out: it sleeps (HANG=sleep), or calls a
           broadcast (HANG=skip); or no rank did (HANG=none)"""
import os
import sys
import threading
import time

os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import model  # noqa: E402


def profile(out, rank):
    net = model.make()
    model.plant(net[2], rank)
    whole = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-3)
    if os.environ.get("GZ") == "1":
        write = torch.profiler.tensorboard_trace_handler(out, worker_name=f"rank-{rank}", use_gzip=True)
    else:
        def write(profiler):
            profiler.export_chrome_trace(os.path.join(out, f"rank-{rank}.json"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=write, record_shapes=True, profile_memory=True,
                                schedule=torch.profiler.schedule(wait=5, warmup=5, active=20, repeat=1),
                                with_stack=os.environ.get("STACK") != "0") as profiler:
        for _ in range(32):
            model.loss_of(whole(torch.randn(model.ROWS, model.WIDTH))).backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


def dump_later(out, rank):
    import torch._C._distributed_c10d as c10d
    time.sleep(8)  # allowed: the hang has to stand for a while
    with open(os.path.join(out, f"recorder_{rank}"), "wb") as file:
        file.write(c10d._dump_fr_trace())
    text = c10d._dump_fr_trace_json()
    with open(os.path.join(out, f"recorder_{rank}.json"), "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    while len([name for name in os.listdir(out) if name.endswith(".json")]) < dist.get_world_size():
        time.sleep(0.05)  # allowed: the pause of a poll loop; who leaves first ends the others' operations
    os._exit(0)


def record(out, rank):
    threading.Thread(target=dump_later, args=(out, rank)).start()
    hang = os.environ.get("HANG", "none")
    for number in range(100000):
        if number == 40 and rank == 2 and hang == "sleep":
            time.sleep(100)  # allowed: the fault
        elif number == 40 and rank == 2 and hang == "skip":
            dist.broadcast(torch.zeros(7), 0)
        else:
            dist.all_reduce(torch.zeros(1000))
        time.sleep(0.01)  # allowed: the pace of the program


def main():
    kind, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    dist.init_process_group("gloo")
    (profile if kind == "profiler" else record)(out, dist.get_rank())


if __name__ == "__main__":
    main()
