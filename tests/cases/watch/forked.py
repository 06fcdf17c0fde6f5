#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""forked.py FILE: a child computes, its parent waits: one program, two processes, no rank in the environment. The child's pid goes
into FILE."""
import os
import signal
import sys

import torch

child = os.fork()
if child == 0:
    while True:
        weights = torch.ones(64, requires_grad=True)
        (weights * weights).sum().backward()
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(str(child))
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
os.wait()
