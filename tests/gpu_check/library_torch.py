# SPDX-License-Identifier: Apache-2.0
"""library_torch.py FILE: a small training under PyTorch's own profiler; writes its kernels and their time into FILE."""
import sys

import torch
from torch.profiler import ProfilerActivity, profile

STEPS = 20
torch.cuda.init()
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(64, 512, device="cuda"), torch.randint(10, (64,), device="cuda")
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    torch.cuda.synchronize()
kernels = [event for event in profiler.profiler.kineto_results.events()
           if "CUDA" in str(event.device_type()) and not event.name().startswith(("Memcpy", "Memset"))]
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(f"kernels {len(kernels)}\nkernel_us {sum(event.duration_ns() for event in kernels) / 1e3}\n")
