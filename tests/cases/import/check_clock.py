#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a diagnosis of two recordings of one machine from standard input: its note must say that their clocks are one."""
import json
import re
import sys

notes = json.load(sys.stdin)["notes"]
told = [re.search(r"shifted by ([+-][\d.]+) ms .* residual ([\d.]+) ms", note) for note in notes]
told = [match for match in told if match]
if len(told) != 1:
    sys.exit(f"no note on clocks: {notes}")
shift, residual = map(float, told[0].groups())
print(f"shift {shift} ms, residual {residual} ms")
sys.exit(0 if abs(shift) <= residual + 1 else "the shift exceeds what is left open")
