# SPDX-License-Identifier: Apache-2.0
"""pipeline.py SCHEDULE [unequal] [MICRO_BATCHES]: four stages under torchrun. SCHEDULE is gpipe, 1f1b or interleaved (two parts a rank);
`unequal` gives the third stage twice the blocks. The fault is in the stage of FAULT_RANK. Each rank says what it sent and received."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

import model


def parts_of(schedule, ranks, is_unequal):
    count = ranks * (2 if schedule == "interleaved" else 1)
    blocks = [2 * (2 if is_unequal and index % ranks == 2 else 1) for index in range(count)]
    torch.manual_seed(3)
    parts = [nn.Sequential(*[model.Block() for _ in range(number)]) for number in blocks]
    parts[-1].append(nn.Linear(model.WIDTH, 16))
    return parts


def main():
    schedule_name = sys.argv[1]
    is_unequal = "unequal" in sys.argv[2:]
    micro_batches = next((int(word) for word in sys.argv[2:] if word.isdigit()), 4)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = parts_of(schedule_name, ranks, is_unequal)
    mine = parts[rank::ranks]
    model.plant(mine[0][0], rank)
    stages = [PipelineStage(part, rank + ranks * at, len(parts), torch.device("cpu")) for at, part in enumerate(mine)]
    options = {"n_microbatches": micro_batches, "loss_fn": lambda out, target: model.loss_of(out)}
    if schedule_name == "interleaved":
        schedule = ScheduleInterleaved1F1B(stages, **options)
    else:
        schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule_name](stages[0], **options)

    def step(rows):
        target = {"target": torch.zeros(len(rows))} if rank == ranks - 1 else {}
        schedule.step(*([rows] if rank == 0 else []), **target)
    model.loop(nn.ModuleList(mine), step, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
