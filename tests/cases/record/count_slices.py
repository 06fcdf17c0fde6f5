#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a decoded trace (check_trace.py --json) and prints how many slices of each name it has, and how deep they lie."""
import json
import sys

slices = json.load(sys.stdin)["slices"]
print(", ".join(f"{name} {entry['count']} at depth {entry['deepest']}" for names in slices.values() for name, entry in sorted(names.items())))
