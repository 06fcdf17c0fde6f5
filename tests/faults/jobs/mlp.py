#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small classifier, data-parallel (PyTorch DDP, gloo, CPU). One process a rank.

  SECONDS[12] BATCH[64] WIDTH[512] WORKERS[0]
  LIGHT=1      layers that mostly sleep (light.py)
  DATA_MB[0]   samples come from a mapped file of this size, one a rank, instead of from a generator
  FAULT...     faults.py
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

import faults
import light

SECONDS = float(os.environ.get("SECONDS") or 12)
BATCH = int(os.environ.get("BATCH") or (16 if light.LIGHT else 64))
WIDTH = int(os.environ.get("WIDTH") or (64 if light.LIGHT else 512))
DATA_MB = int(os.environ.get("DATA_MB") or 0)
FEATURES, CLASSES = 128, 10


class Points(Dataset):
    """Points around the corners of a cube, made on the fly."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        faults.at_sample(BATCH)
        label = i % CLASSES
        return torch.full((FEATURES,), float(label)) + torch.arange(FEATURES) % (i % 7 + 1), label


class MappedPoints(Points):
    """Points from a file that fits into memory as long as nobody takes the memory away."""

    SAMPLE = 1 << 15

    def __init__(self):
        with tempfile.NamedTemporaryFile() as file:
            for _ in range(DATA_MB):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
            self.bytes = torch.from_file(file.name, shared=True, size=DATA_MB << 20, dtype=torch.uint8)

    def __getitem__(self, i):
        values, label = super().__getitem__(i)
        return values + self.read_sample(i), label

    def read_sample(self, i):
        offset = (i * 7919 * self.SAMPLE) % (DATA_MB << 20)
        return self.bytes[offset:offset + self.SAMPLE].float().mean() / 1000


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        pace = [light.Paced(0.004)] if light.LIGHT else []
        self.first = nn.Sequential(nn.Linear(FEATURES, WIDTH), *pace, nn.ReLU())
        self.rest = nn.Sequential(nn.Linear(WIDTH, WIDTH), *pace, nn.ReLU(), nn.Linear(WIDTH, WIDTH), *pace, nn.ReLU(),
                                  nn.Linear(WIDTH, CLASSES))

    def forward(self, points):
        return self.rest(faults.at_forward(self.first(points), 1))


def collate(samples):
    faults.at_collate(1)
    return faults.grown(default_collate(samples), 18)


def loss_of(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def build_loader(data, batch):
    return DataLoader(data, batch, sampler=DistributedSampler(data), num_workers=faults.WORKERS, collate_fn=collate, drop_last=True)


def train_epoch(model, optimizer, loader, step_count, clock):
    """True if the job is over."""
    for done, batch in enumerate(loader, 1):
        faults.at_step_begin()
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        faults.at_step_end(len(clock.steps), model, batch, loss, loss_of)
        if not clock.step_done(sum(p.numel() * 4 for p in model.parameters())):
            return True
        if done == step_count:
            return False
    return True


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = MappedPoints() if DATA_MB else Points()
    model = DistributedDataParallel(Classifier(), bucket_cap_mb=1)
    optimizer = faults.optimizer_kind(torch.optim.Adam)(model.parameters(), 1e-3)
    clock = faults.Clock(SECONDS)
    for batch, step_count in faults.epochs(BATCH):
        if train_epoch(model, optimizer, build_loader(data, batch), step_count, clock):
            break
    dist.barrier()
    clock.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
