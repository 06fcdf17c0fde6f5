# SPDX-License-Identifier: Apache-2.0
"""hang.py KIND, under torchrun: at step AT (30) rank 2 of four stands, and the others wait for it for ever. MODE=ddp|fsdp (2.4 and later).

stop       it is stopped by a signal                   absent    it never comes to init_process_group
loop       it computes in Python for ever              native    it computes in one native call for ever
asleep     it sleeps once an exception was handled     more      it calls a broadcast more
less       it leaves its loop one batch too early, and calls barrier
receive    it receives what nobody sends               lock      its thread holds a lock, and waits for another one of its main thread's
order      two threads use one group, there in another order
pipe       it saves into a pipe that nobody reads      worker    its data loader's worker stands
killed     it is killed                                shape      it makes a call of another shape
slow=SECONDS, save=SECONDS, program=SECONDS, compile=SECONDS: rank 2 evaluates, saves checkpoints, waits for a program, or compiles models, for so
long, and goes on"""
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist

import model

RANK_AT_FAULT = 2
AT = int(os.environ.get("AT", "30"))
MODE = os.environ.get("MODE", "ddp")


def search_best_split():
    x = 0
    while True:
        x = (x * 31 + 7) % 1000003


def derive_key():
    hashlib.pbkdf2_hmac("sha256", b"key", b"salt", 2**31 - 1)


def clean_up_after_error():
    try:
        raise RuntimeError("planted")
    except RuntimeError:
        time.sleep(100000)  # allowed: the fault


class Pair:
    def __init__(self):
        self.first, self.second = threading.Lock(), threading.Lock()

    def hold_first(self):
        with self.first:
            self.is_held.set()
            self.wants_second.wait()
            with self.second:
                pass

    def run(self):
        self.is_held, self.wants_second = threading.Event(), threading.Event()
        threading.Thread(target=self.hold_first, daemon=True).start()
        with self.second:
            self.is_held.wait()
            self.wants_second.set()
            with self.first:
                pass


def save_checkpoint(net):
    _, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        torch.save(net.state_dict(), file)


def evaluate(seconds):
    net, end = model.make(), time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end:
            net(torch.randn(model.ROWS, model.WIDTH))


def save_often(seconds):
    net, end = model.make(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            torch.save(net.state_dict(), os.path.join(folder, "checkpoint"))
            os.sync()


def upload(seconds):
    subprocess.run(["sleep", seconds], check=True)


def compile_models(seconds):
    end, width = time.monotonic() + seconds, 64
    while time.monotonic() < end:
        torch._dynamo.reset()
        net = torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())])
        torch.compile(net)(torch.randn(8, width)).sum().backward()
        width += 16


class Rows(torch.utils.data.Dataset):
    def __init__(self, stands):
        self.stands = stands

    def __len__(self):
        return 1000000

    def __getitem__(self, index):
        if self.stands and index >= AT * model.ROWS:
            self.read_remote_shard()
        return torch.randn(model.WIDTH)

    def read_remote_shard(self):
        time.sleep(100000)  # allowed: the fault


def call_with_another_shape():
    """The next call of the others."""
    if MODE == "fsdp":
        dist.all_gather_into_tensor(torch.zeros(32), torch.zeros(8))
    else:
        dist.all_reduce(torch.zeros(8))


def stand(kind, net):
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "loop":
        search_best_split()
    elif kind == "native":
        derive_key()
    elif kind == "asleep":
        clean_up_after_error()
    elif kind == "more":
        dist.broadcast(torch.zeros(8), RANK_AT_FAULT)
    elif kind == "less":
        dist.barrier()
    elif kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "shape":
        call_with_another_shape()
    elif kind == "receive":
        dist.recv(torch.zeros(8), 0)
    elif kind == "lock":
        Pair().run()
    elif kind == "pipe":
        save_checkpoint(net)
    elif kind.startswith("slow="):
        evaluate(float(kind.removeprefix("slow=")))
    elif kind.startswith("save="):
        save_often(float(kind.removeprefix("save=")))
    elif kind.startswith("program="):
        upload(kind.removeprefix("program="))
    elif kind.startswith("compile="):
        compile_models(float(kind.removeprefix("compile=")))


def reduce_statistics(is_sum):
    if is_sum:
        dist.all_reduce(torch.zeros(8))
    else:
        dist.broadcast(torch.zeros(8), 0)


def in_two_threads(is_at_fault):
    """Each rank calls an all_reduce and a broadcast in two threads of one group; the one at fault begins with the other one."""
    beside = threading.Thread(target=reduce_statistics, args=(not is_at_fault,))
    beside.start()
    time.sleep(0.2)  # allowed: the order of the fault
    reduce_statistics(is_at_fault)
    beside.join()


def steps_of(net):
    whole, optimizer = None, None
    if MODE == "fsdp":
        from torch.distributed.fsdp import fully_shard
        for layer in net:
            fully_shard(layer)
        whole = fully_shard(net)
    else:
        whole = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-3)

    def step(batch):
        model.loss_of(whole(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def main():
    kind = sys.argv[1]
    is_at_fault = int(os.environ["RANK"]) == RANK_AT_FAULT
    if kind == "absent" and is_at_fault:
        clean_up_after_error()
    dist.init_process_group("gloo")
    net = model.make()
    step = steps_of(net)
    workers = 1 if kind == "worker" else 0
    batches = iter(torch.utils.data.DataLoader(Rows(kind == "worker" and is_at_fault), batch_size=model.ROWS, num_workers=workers))
    for number in range(1000000):
        if number == AT:
            print(f"at step {AT}: rank {dist.get_rank()} is process {os.getpid()}", flush=True)
            if kind == "order":
                in_two_threads(is_at_fault)
            elif is_at_fault:
                stand(kind, net)
        step(next(batches))


if __name__ == "__main__":
    main()
