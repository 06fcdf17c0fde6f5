#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A training of one process whose heap glibc trims and grows again in each step. At its end it prints the kernel's own account of a step.

With MALLOC_TRIM_THRESHOLD_=1000000000 and MALLOC_MMAP_THRESHOLD_=1000000000 in its environment the heap stays. STEPS [300]
"""
import os
import resource

import torch
from torch import nn

SIZE = 256
STEPS = int(os.environ.get("STEPS", "300"))

torch.set_num_threads(1)
torch.manual_seed(1)
model = nn.Sequential(*[layer for _ in range(5) for layer in (nn.Linear(SIZE, SIZE), nn.GELU())], nn.Linear(SIZE, 8))
optimizer = torch.optim.Adam(model.parameters())


def train_step():
    for _ in range(4):
        model(torch.randn(SIZE, SIZE)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


before = resource.getrusage(resource.RUSAGE_SELF)
for _ in range(STEPS):
    train_step()
after = resource.getrusage(resource.RUSAGE_SELF)
print(f"a step: {(after.ru_minflt - before.ru_minflt) / STEPS:.0f} page faults, {(after.ru_stime - before.ru_stime) / STEPS * 1e3:.1f} ms of system "
      f"time, {(after.ru_utime - before.ru_utime) / STEPS * 1e3:.1f} ms of user time")
