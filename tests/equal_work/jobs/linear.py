# SPDX-License-Identifier: Apache-2.0
"""Trains stacks of linear layers, data-parallel (PyTorch DDP, gloo, CPU). One process a rank.

  MODE[accumulate]  accumulate   four passes a step, gradients exchanged after the last one; equal work
                    two_models   two models in turn, one with three times the batch; equal work
                    rotate       in step i, rank i mod N has six times the batch
                    lengths      each rank draws its batch anew for each step, from a quarter to four times
                    turn         every tenth step is six times as long, on one rank after the other
                    planted      rank 1 has one and a half times the batch
                    seldom       rank 1's step takes it three times as long as a step usually takes, once in EVERY steps
  STEPS[150] BATCH[192] WIDTH[320] EVERY[30] REASON[]: reasons.py
"""
import os
import random
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import reasons

MODE, STEPS = os.environ.get("MODE") or "accumulate", int(os.environ.get("STEPS") or 150)
BATCH, WIDTH, EVERY = int(os.environ.get("BATCH") or 192), int(os.environ.get("WIDTH") or 320), int(os.environ.get("EVERY") or 30)
LAYERS, CLASSES, PASSES = 5, 8, 4


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, rows):
        return self.head(self.layers(rows))


def rows_of(step, rank, world, draw):
    """The batch of this rank in this step."""
    if MODE == "lengths":
        return BATCH * draw.choice([1, 2, 4, 8, 16]) // 4
    if (MODE == "rotate" and step % world == rank) or (MODE == "turn" and step % 10 == 0 and step // 10 % world == rank):
        return BATCH * 6
    if MODE == "planted" and rank == 1:
        return BATCH * 3 // 2
    return BATCH


def train_batch(model, rows):
    model(torch.randn(rows, WIDTH)).square().mean().backward()


def train_step(models, optimizers, rows):
    if MODE == "accumulate":
        with models[0].no_sync():
            for _ in range(PASSES - 1):
                train_batch(models[0], rows)
        train_batch(models[0], rows)
        update(optimizers[0])
        return
    for scale, model, optimizer in zip((1, 3), models, optimizers):
        train_batch(model, rows * scale)
        update(optimizer)


def work_until(end_s, model, rows):
    """Passes whose gradients are not exchanged. More rows would not do: much of a step takes as long for one row."""
    with model.no_sync():
        while time.perf_counter() < end_s:
            train_batch(model, rows)


def update(optimizer):
    optimizer.step()
    optimizer.zero_grad()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    reasons.prepare(rank)
    models = [DistributedDataParallel(Stack()) for _ in range(2 if MODE == "two_models" else 1)]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    draw = random.Random(100 + rank)
    usual_s = []
    for step in range(STEPS):
        reasons.at_step(step, rank)
        begin = time.perf_counter()
        is_long = MODE == "seldom" and rank == 1 and step % EVERY == EVERY - 1
        if is_long:
            work_until(begin + 2 * statistics.median(usual_s), models[0], BATCH)
        train_step(models, optimizers, rows_of(step, rank, world, draw))
        if not is_long:
            usual_s.append(time.perf_counter() - begin)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
