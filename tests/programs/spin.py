# SPDX-License-Identifier: Apache-2.0
"""Works for some seconds in a function with a known name."""
import sys
import time


def spin_in_known_function(seconds):
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        total += sum(range(1000))
    return total


spin_in_known_function(float(sys.argv[1]))
