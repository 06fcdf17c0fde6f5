# SPDX-License-Identifier: Apache-2.0
"""The model that single.py and ranks.py train: WIDTH[256] BATCH[64]."""
import os

import torch
import torch.nn as nn

WIDTH, BATCH = int(os.environ.get("WIDTH") or 256), int(os.environ.get("BATCH") or 64)
FEATURES, CLASSES = 64, 10


def build():
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, CLASSES))


def batch(size=BATCH):
    return torch.randn(size, FEATURES), torch.randint(CLASSES, (size,))


def loss_of(model, points):
    return nn.functional.cross_entropy(model(points[0]), points[1])


def step(model, optimizer, points):
    optimizer.zero_grad()
    loss = loss_of(model, points)
    loss.backward()
    optimizer.step()
    return loss
