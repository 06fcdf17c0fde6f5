# SPDX-License-Identifier: Apache-2.0
"""Two ranks started by torch.multiprocessing.spawn: their environment does not say which is which."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank_main(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    for _ in range(200):
        dist.all_reduce(torch.ones(1000))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        free_port = listener.getsockname()[1]
    mp.spawn(rank_main, args=(free_port,), nprocs=2)
