#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""catch_errors.py FOLDER [LEAVE]: a job of two ranks that lives on errors which it catches: of operators, of backward passes, and
of a collective whose peer has gone. Goes on until the file LEAVE is there; prints what it caught in the end."""
import os
import sys
import time

import torch
import torch.distributed as dist

RANKS = 2


def caught(what, times):
    count = 0
    for _ in range(times):
        try:
            what()
        except RuntimeError:
            count += 1
    return count


def backward_twice():
    weights = torch.ones(8, requires_grad=True)
    loss = (weights * weights).sum()
    loss.backward()
    loss.backward()


def main():
    folder, leave = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "/"
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29656", WORLD_SIZE=str(RANKS))
    peer = os.fork()
    rank = 1 if peer == 0 else 0
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    value = torch.ones(1024)
    going_on = torch.ones(1)
    while going_on[0] > 0:
        caught(backward_twice, 1)
        going_on[0] = 1 if rank == 0 and not os.path.exists(leave) else 0
        dist.all_reduce(going_on)  # the ranks leave together
        time.sleep(0.05)  # allowed: the pace of the job that is watched
    dist.barrier()
    if rank == 1:
        os._exit(0)
    os.waitpid(peer, 0)
    backward_errors = caught(backward_twice, 5)
    operators = caught(lambda: torch.ones(2, 3) @ torch.ones(2, 3), 5)
    collectives = caught(lambda: dist.all_reduce(value), 1)
    print(f"caught {operators} of operators, {backward_errors} of backward passes, {collectives} of collectives", flush=True)
    os._exit(0)  # gloo's threads of the failed collective sometimes end an interpreter that takes its time


if __name__ == "__main__":
    main()
