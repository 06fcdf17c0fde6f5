# SPDX-License-Identifier: Apache-2.0
"""train.py START MODE: four ranks on gloo. MODE is ddp or fsdp. START says who starts them:
launched   torchrun, or `python -m torch.distributed.run`: this process is a rank
spawn      torch.multiprocessing, which starts the highest rank first
fork       os.fork, highest rank first
thread     as spawn; the ranks train in a thread of their own"""
import os
import sys
import tempfile
import threading

import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import model

RANKS = 4


def train(rank=None, store=None, mode="ddp"):
    if rank is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    rank = dist.get_rank()
    net = model.make()
    model.plant(net[2], rank)
    if mode == "fsdp":
        from torch.distributed.fsdp import fully_shard
        for layer in net:
            fully_shard(layer)
        whole = fully_shard(net)
    else:
        whole = nn.parallel.DistributedDataParallel(net)
    model.loop(whole, lambda rows: model.loss_of(whole(rows)).backward(), rank)
    dist.barrier()
    dist.destroy_process_group()


def spawned(index, store, mode, in_thread):
    rank = RANKS - 1 - index
    if not in_thread:
        return train(rank, store, mode)
    thread = threading.Thread(target=train, args=(rank, store, mode))
    thread.start()
    return thread.join()


def fork(store, mode):
    children = []
    for index in range(RANKS):
        pid = os.fork()
        if pid == 0:
            train(RANKS - 1 - index, store, mode)
            sys.stdout.flush()
            sys.exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def main():
    start, mode = sys.argv[1:]
    if start == "launched":
        train(mode=mode)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        if start == "fork":
            fork(store, mode)
        else:
            mp.spawn(spawned, args=(store, mode, start == "thread"), nprocs=RANKS)


if __name__ == "__main__":
    main()
