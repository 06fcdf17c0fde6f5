# SPDX-License-Identifier: Apache-2.0
"""Pipeline training on CPUs: each rank has one stage, and passes the micro-batches of a batch on to the next, then their gradients back.

Settings in the environment: STEPS, MICRO_BATCHES; SLOW_STAGE and SLOW_MS, a stage that checks its activations for so long; BIG_STAGE, one
that has twice the layers of the others."""
import os
import time

import torch
import torch.distributed as dist

WIDTH, ROWS, LAYERS = 256, 64, 3
STEPS = int(os.environ.get("STEPS", "100"))
MICRO_BATCHES = int(os.environ.get("MICRO_BATCHES", "4"))
SLOW_STAGE = int(os.environ.get("SLOW_STAGE", "-1"))
SLOW_S = float(os.environ.get("SLOW_MS", "10")) / 1000
BIG_STAGE = int(os.environ.get("BIG_STAGE", "-1"))


def check_activations(values):
    time.sleep(SLOW_S)
    return values


def make_stage(stage):
    torch.manual_seed(stage)
    layers = LAYERS * (2 if stage == BIG_STAGE else 1)
    return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(layers)])


def forward_all(model, stage, last, batch):
    """The inputs and outputs of all micro-batches."""
    passed = []
    for rows in batch.chunk(MICRO_BATCHES):
        if stage > 0:
            rows = torch.empty_like(rows)
            dist.recv(rows, stage - 1)
            rows.requires_grad_()
        values = model(rows)
        if stage == SLOW_STAGE:
            values = check_activations(values)
        if stage < last:
            dist.send(values.detach(), stage + 1)
        passed.append((rows, values))
    return passed


def backward_all(passed, stage, last):
    for rows, values in passed:
        if stage == last:
            values.square().mean().backward()
        else:
            gradient = torch.empty_like(values)
            dist.recv(gradient, stage + 1)
            values.backward(gradient)
        if stage > 0:
            dist.send(rows.grad, stage - 1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stage, last = dist.get_rank(), dist.get_world_size() - 1
    model = make_stage(stage)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for _ in range(STEPS):
        passed = forward_all(model, stage, last, torch.randn(MICRO_BATCHES * ROWS, WIDTH))
        backward_all(passed, stage, last)
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    if stage == 0:
        print(f"{STEPS} steps, {(time.perf_counter() - begin) / STEPS * 1e3:.1f} ms each")


if __name__ == "__main__":
    main()
