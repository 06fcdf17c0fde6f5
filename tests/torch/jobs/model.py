# SPDX-License-Identifier: Apache-2.0
"""A small model, and the fault of these jobs: on rank FAULT_RANK a forward hook sleeps DOSE seconds (FAULT=hook) or computes as long (FAULT=work).
That rank says at its end how often the hook ran and how long it took by its own clock: the truth of an evaluation.
STEP_LOG[]: a file for the end of each step of rank 0, time.time(), one line each."""
import atexit
import os
import time

import torch
from torch import nn

WIDTH = 256
STEPS = int(os.environ.get("STEPS", "150"))
DOSE_S = float(os.environ.get("DOSE", "0.035"))
ROWS = 96

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, values):
        return values + self.down(nn.functional.gelu(self.up(self.norm(values))))


def make(blocks=4):
    torch.manual_seed(3)
    return nn.Sequential(*[Block() for _ in range(blocks)], nn.Linear(WIDTH, 16))


def loss_of(out):
    return out.square().mean()


class Hook:
    def __init__(self, kind, rank):
        self.kind, self.count, self.taken_s = kind, 0, 0.0
        self.matrix = torch.randn(WIDTH, WIDTH)
        atexit.register(lambda: print(f"hook rank={rank} calls={self.count} ms={1e3 * self.taken_s:.1f}", flush=True))

    def slow_activation_hook(self, module, inputs, output):
        begin = time.perf_counter()
        if self.kind == "work":
            while time.perf_counter() - begin < DOSE_S:
                torch.mm(self.matrix, self.matrix)
        else:
            time.sleep(DOSE_S)  # allowed: the fault
        self.count += 1
        self.taken_s += time.perf_counter() - begin
        return output


def plant(module, rank):
    """The hook on `module`, where this rank is the one at fault."""
    kind = os.environ.get("FAULT", "none")
    if kind != "none" and rank == int(os.environ.get("FAULT_RANK", "2")):
        module.register_forward_hook(Hook(kind, rank).slow_activation_hook)


class StepLog:
    def __init__(self, rank):
        path = os.environ.get("STEP_LOG") if rank == 0 else None
        self.file = open(path, "w", buffering=1, encoding="ascii") if path else None

    def add(self):
        if self.file:
            self.file.write(f"{time.time():.6f}\n")


def loop(model, step, rank):
    """STEPS steps of an optimizer around `step`. Says where it is, so that somebody who attaches knows that training has begun."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    log = StepLog(rank)
    begin = time.perf_counter()
    for number in range(STEPS):
        if number == 10 and rank == 0:
            print("training", flush=True)
        step(torch.randn(ROWS, WIDTH))
        optimizer.step()
        optimizer.zero_grad()
        log.add()
    if rank == 0:
        print(f"steps={STEPS} step_ms={(time.perf_counter() - begin) / STEPS * 1e3:.1f} torch={torch.__version__}", flush=True)
