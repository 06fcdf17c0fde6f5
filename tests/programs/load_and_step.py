#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""load_and_step.py STEPS [FOLDER]: one rank that trains with PyTorch's DataLoader and SGD; most of its time goes by in the data loader.

While FOLDER/in exists it stays in the data loader, and while FOLDER/out exists behind it; it then makes FOLDER/is-in or is-out."""
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

LOAD_S = 0.02


def stay(place):
    path = os.path.join(sys.argv[2], place) if len(sys.argv) > 2 else ""
    while os.path.exists(path):
        open(os.path.join(sys.argv[2], f"is-{place}"), "w", encoding="utf-8").close()
        time.sleep(LOAD_S)  # allowed: the pause of a poll loop


class SlowRows(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(LOAD_S)  # allowed: the data loader that is observed is slow
        stay("in")
        return torch.full((16,), float(index % 7))


def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for rows in DataLoader(SlowRows(int(sys.argv[1])), batch_size=1):
        stay("out")
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


main()
