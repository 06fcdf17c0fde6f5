#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A small data-parallel training job (PyTorch DDP, gloo, CPU) with faults that can be switched on.

One process a rank; launch.sh starts them. Needs: apt install python3-torch libopenblas0-serial.

  STEPS[200] BATCH[8] SEQ[48] D_MODEL[96] LAYERS[2] WORKERS[0] SECONDS[0: as many steps as STEPS says]
  FAULT[none]     input | input_cpu | forward | optimizer | worker | checkpoint | calls | common_input | skip_collective
  FAULT_RANK[2]   the rank that gets it
  FAULT_MS[40]    milliseconds a step
  FAULT_SHARE[]   instead of FAULT_MS: share of this job's own step time, measured in its first steps
  COUNTS[]        folder: each rank writes what it truly called, for comparison with a trace
  STEP_LOG[]      folder: each rank writes the end of every step, CLOCK_BOOTTIME nanoseconds, one line each
"""
import datetime
import json
import multiprocessing
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def env_int(name, default):
    return int(os.environ.get(name) or default)


STEPS, BATCH, SEQ = env_int("STEPS", 200), env_int("BATCH", 8), env_int("SEQ", 48)
D_MODEL, LAYERS, WORKERS = env_int("D_MODEL", 96), env_int("LAYERS", 2), env_int("WORKERS", 0)
SECONDS = float(os.environ.get("SECONDS") or 0)
FAULT, FAULT_RANK = os.environ.get("FAULT", "none"), env_int("FAULT_RANK", 2)
COUNTS, STEP_LOG = os.environ.get("COUNTS", ""), os.environ.get("STEP_LOG", "")
RANK = env_int("RANK", 0)
VOCAB = 256
FAULT_SHARE = float(os.environ.get("FAULT_SHARE") or 0)
CALIBRATION_STEPS = 12
# Shared with data-loader workers, which are forked before the fault is calibrated.
fault_seconds = multiprocessing.Value("d", 0.0 if FAULT_SHARE else float(os.environ.get("FAULT_MS") or 40) / 1000, lock=False)


def has_fault(name):
    return name == FAULT and (RANK == FAULT_RANK or name.startswith("common"))


def burn(seconds):
    """Uses the processor for that much of its own time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(500))


class Sequences(Dataset):
    """Arithmetic token sequences, made on the fly, the same for the same index."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        first = torch.randint(0, VOCAB, (1,), generator=torch.Generator().manual_seed(i))
        return (first + torch.arange(SEQ + 1) * (1 + i % 3)) % VOCAB


class SlowSequences(Sequences):
    """The same data from a slow source: every sample waits."""

    def __getitem__(self, i):
        time.sleep(fault_seconds.value / BATCH)
        return super().__getitem__(i)


class CostlySequences(Sequences):
    """The same data after needless work on the processor."""

    def __getitem__(self, i):
        burn(fault_seconds.value / BATCH)
        return super().__getitem__(i)


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, D_MODEL)
        self.positions = nn.Embedding(SEQ, D_MODEL)
        layer = nn.TransformerEncoderLayer(D_MODEL, 4, 4 * D_MODEL, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(D_MODEL, VOCAB)

    def forward(self, x):
        hidden = self.tokens(x) + self.positions(torch.arange(x.size(1)))
        if has_fault("forward"):
            self.extra_normalisation()
        return self.head(self.blocks(hidden))

    def extra_normalisation(self):
        burn(fault_seconds.value)


class SlowAdamW(torch.optim.AdamW):
    def step(self, closure=None):
        self.scan_for_overflow()
        return super().step(closure)

    def scan_for_overflow(self):
        burn(fault_seconds.value)


def save_checkpoint(model):
    torch.save(model.state_dict(), os.devnull)
    time.sleep(fault_seconds.value * 10)


class TrueCounts:
    """Counts collectives inside the job: all-reduces through a DDP communication hook, the rest by wrapping the calls."""

    def __init__(self, model):
        self.calls = {"allreduce": 0, "barrier": 0}
        self.steps = 0
        model.register_comm_hook(None, self.hook)

    def hook(self, _state, bucket):
        self.calls["allreduce"] += 1
        tensor = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0])

    def barrier(self):
        self.calls["barrier"] += 1
        dist.barrier()

    def write(self, folder):
        with open(os.path.join(folder, f"rank{RANK}.json"), "w", encoding="utf-8") as out:
            json.dump({"rank": RANK, "pid": os.getpid(), "steps": self.steps, "calls": self.calls}, out)


def build_loader():
    kinds = {"input": SlowSequences, "input_cpu": CostlySequences, "worker": SlowSequences,
             "common_input": SlowSequences}
    kind = kinds[FAULT] if FAULT in kinds and has_fault(FAULT) else Sequences
    data = kind()
    workers = 1 if FAULT == "worker" else WORKERS
    return DataLoader(data, BATCH, sampler=DistributedSampler(data, seed=0), num_workers=workers, drop_last=True)


def calibrate(step, step_seconds):
    """Sets the fault to its share of the median step once enough steps are measured; all ranks agree on rank 0's."""
    if not FAULT_SHARE or step != CALIBRATION_STEPS:
        return
    median = torch.tensor([sorted(step_seconds[2:])[len(step_seconds[2:]) // 2]])
    dist.broadcast(median, 0)
    # A worker fetches while its rank computes: it costs a step only what it takes beyond one.
    fault_seconds.value = (FAULT_SHARE + (FAULT == "worker")) * float(median)
    if RANK == FAULT_RANK:
        print(f"fault {FAULT} on rank {RANK}: {fault_seconds.value * 1000:.1f} ms a step", flush=True)


def leave_together(store, ranks):
    """Rank 0 serves the store of the job. It leaves last: without it, a thread of each other rank turns in a circle until its rank ends."""
    if RANK != 0:
        store.set(f"rank {RANK} leaves", "yes")
    elif ranks > 1:
        store.wait([f"rank {rank} leaves" for rank in range(1, ranks)], datetime.timedelta(minutes=2))


def read_nothing(seconds):
    """Lets the kernel work for that much of this thread's processor time, call by call."""
    end = time.thread_time() + seconds
    with open("/dev/zero", "rb", buffering=0) as zeros:
        while time.thread_time() < end:
            zeros.read(1 << 20)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = build_loader()
    model = DistributedDataParallel(TinyLM())
    counts = TrueCounts(model) if COUNTS else None
    optimizer_kind = SlowAdamW if has_fault("optimizer") else torch.optim.AdamW
    optimizer = optimizer_kind(model.parameters(), 1e-3)
    step_log = open(os.path.join(STEP_LOG, f"rank{RANK}.txt"), "w", buffering=1, encoding="utf-8") if STEP_LOG else None
    step, started, step_seconds = 0, time.monotonic(), []
    begin = time.monotonic()
    keep_going = torch.ones(1)
    for batch in loader:
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        step_seconds.append(time.monotonic() - begin)
        begin = time.monotonic()
        if step_log:
            step_log.write(f"{time.clock_gettime_ns(time.CLOCK_BOOTTIME)}\n")
        calibrate(step, step_seconds)
        if has_fault("calls"):
            read_nothing(fault_seconds.value)
        if has_fault("checkpoint") and step % 10 == 0:
            save_checkpoint(model)
        if has_fault("skip_collective") and step == 60:
            time.sleep(3600)  # the rank that never arrives
        if SECONDS and step % 8 == 0:  # all ranks must stop at the same step: rank 0 decides
            keep_going[0] = float(time.monotonic() - started < SECONDS)
            dist.broadcast(keep_going, 0)
            if not keep_going[0]:
                break
        if not SECONDS and step >= STEPS:
            break
    (counts.barrier if counts else dist.barrier)()
    if counts:
        counts.steps = step
        counts.write(COUNTS)
    if RANK == 0:
        median = sorted(step_seconds)[len(step_seconds) // 2]
        print(f"trained {step} steps, median {median * 1000:.1f} ms, loss {float(loss):.4f}", flush=True)
    store, ranks = dist.distributed_c10d._get_default_store(), dist.get_world_size()
    dist.destroy_process_group()
    leave_together(store, ranks)


if __name__ == "__main__":
    main()
