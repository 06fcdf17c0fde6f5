# SPDX-License-Identifier: Apache-2.0
"""spin.py FILE: works in a function with a known name until FILE is there."""
import os
import sys


def spin_in_known_function(path):
    total = 0
    while not os.path.exists(path):
        total += sum(range(1000))
    return total


spin_in_known_function(sys.argv[1])
