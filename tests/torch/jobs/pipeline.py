# SPDX-License-Identifier: Apache-2.0
"""pipeline.py SCHEDULE [unequal] [twice] [MICRO_BATCHES]: four ranks under torchrun. SCHEDULE is gpipe, 1f1b or interleaved (two parts a
rank); `unequal` gives the third stage twice the blocks; `twice`: two pipelines of two stages, which average their gradients. The fault is
in the stage of FAULT_RANK. STAGE_MS=10,10,20,10: each stage waits for a device for so long in each forward pass. Each rank says how many
messages it sent and received."""
import atexit
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

import model

TWICE_BLOCKS = 2
STAGE_MS = os.environ.get("STAGE_MS")


class Device(nn.Module):
    def __init__(self, ms):
        super().__init__()
        self.seconds = ms / 1000

    def forward(self, values):
        time.sleep(self.seconds)  # allowed: stands for a device's work
        return values


def count_messages(rank):
    counts = dict.fromkeys(("send", "recv"), 0)

    def counted(name):
        do = getattr(dist.ProcessGroup, name)

        def call(*given, **named):
            counts[name] += 1
            return do(*given, **named)
        setattr(dist.ProcessGroup, name, call)
    for name in counts:
        counted(name)
    atexit.register(lambda: print(f"messages rank={rank} sent={counts['send']} received={counts['recv']}", flush=True))


def parts_of(schedule, stages, is_unequal):
    count = stages * (2 if schedule == "interleaved" else 1)
    blocks = [2 * (TWICE_BLOCKS if is_unequal and index % stages == 2 else 1) for index in range(count)]
    torch.manual_seed(3)
    parts = [nn.Sequential(*[model.Block() for _ in range(number)]) for number in blocks]
    parts[-1].append(nn.Linear(model.WIDTH, 16))
    if STAGE_MS:
        for part, ms in zip(parts, STAGE_MS.split(","), strict=True):
            part.append(Device(float(ms)))
    return parts


def average_gradients(parts, group):
    for part in parts:
        for parameter in part.parameters():
            dist.all_reduce(parameter.grad, group=group)


def main():
    schedule_name = sys.argv[1]
    is_twice = "twice" in sys.argv[2:]
    micro_batches = next((int(word) for word in sys.argv[2:] if word.isdigit()), 4)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count_messages(rank)
    stages, copies = (ranks // 2, 2) if is_twice else (ranks, 1)
    mesh = init_device_mesh("cpu", (copies, stages), mesh_dim_names=("copy", "stage"))
    index, group = mesh.get_local_rank("stage"), mesh.get_group("stage")
    parts = parts_of(schedule_name, stages, "unequal" in sys.argv[2:])
    mine = parts[index::stages]
    model.plant(mine[0][0], rank)
    built = [PipelineStage(part, index + stages * at, len(parts), torch.device("cpu"), group=group) for at, part in enumerate(mine)]
    options = {"n_microbatches": micro_batches, "loss_fn": lambda out, target: model.loss_of(out)}
    if schedule_name == "interleaved":
        schedule = ScheduleInterleaved1F1B(built, **options)
    else:
        schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule_name](built[0], **options)

    def step(rows):
        target = {"target": torch.zeros(len(rows))} if index == stages - 1 else {}
        schedule.step(*([rows] if index == 0 else []), **target)
        if is_twice:
            average_gradients(mine, mesh.get_group("copy"))
    model.loop(nn.ModuleList(mine), step, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
