# SPDX-License-Identifier: Apache-2.0
"""Light compute (LIGHT=1): layers that mostly sleep, as if a device did the work, so that eight ranks fit on two cores."""
import os
import time

import torch
import torch.nn as nn

LIGHT = bool(int(os.environ.get("LIGHT") or 0))
_matrix = torch.randn(96, 96)


def compute(seconds):
    """A small matrix product, then sleep for the rest of the time."""
    end = time.monotonic() + seconds
    torch.mm(_matrix, _matrix)
    time.sleep(max(0.0, end - time.monotonic()))


class _Paced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, seconds):
        ctx.seconds = seconds
        compute(seconds)
        return values.view_as(values)

    @staticmethod
    def backward(ctx, gradient):
        compute(1.5 * ctx.seconds)
        return gradient, None


class Paced(nn.Module):
    """Takes `seconds` forward and half as much again backward."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, values):
        return _Paced.apply(values, self.seconds)
