#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A child computes, its parent waits: one program, two processes, no rank in the environment."""
import os
import signal
import time

import torch

child = os.fork()
if child == 0:
    while True:
        weights = torch.ones(64, requires_grad=True)
        (weights * weights).sum().backward()
        time.sleep(0.01)
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
os.wait()
