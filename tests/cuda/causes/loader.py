#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""loader.py LIBRARY WORD...: the loop of causes.cu with PyTorch's DataLoader in front, words as there.

mode=loader: a batch takes `amount` us to load, and the device waits for it. The twin loads the next batch while the device works."""
import ctypes
import statistics
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, wanted, amount_us):
        self.wanted, self.amount_us = wanted, amount_us

    def __len__(self):
        return len(self.wanted)

    def __getitem__(self, index):
        if self.wanted[index]:
            time.sleep(self.amount_us * 1e-6)  # allowed: the storage that takes its time
        return torch.zeros(1)


def main():
    words = dict(word.split("=", 1) for word in sys.argv[2:])
    library = ctypes.CDLL(sys.argv[1])
    steps = library.causes_open(" ".join(sys.argv[2:]).encode())
    plant, is_twin = words.get("plant", "always"), words.get("twin") == "1"
    planted = [plant == "always" or (plant == "alternate" and step % 2 == 1) for step in range(steps)]
    batches = iter(DataLoader(Samples(planted + [False], float(words.get("amount", 0))), num_workers=0))
    if is_twin:
        next(batches)
    times = {True: [], False: []}
    for step in range(steps):
        began = time.monotonic()
        if not is_twin:
            next(batches)
        library.causes_launch(step)
        if is_twin:
            next(batches)
        library.causes_wait(step)
        if step >= 3 and step + 1 < steps:
            times[planted[step + 1 if is_twin else step]].append(time.monotonic() - began)
    with_it, without = (statistics.median(times[key]) * 1e6 if times[key] else 0 for key in (True, False))
    cost = 1 - without / with_it if with_it and without else -1
    print(f'{{"mode": "loader", "twin": {int(is_twin)}, "planted_us": {with_it:.1f}, "clean_us": {without:.1f}, "cost": {cost:.4f}}}', flush=True)


main()
