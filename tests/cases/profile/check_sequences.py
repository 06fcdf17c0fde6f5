#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each thread's collectives in a window carry every sequence number from its first to its last exactly once: check_sequences.py TRACE.json"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as trace:
    sequences = json.load(trace)["sequences"]
gaps = [s for s in sequences if not s["last"] - s["first"] + 1 == s["count"] == s["distinct"]]
print(f"{len(sequences)} threads, {sum(s['count'] for s in sequences)} collectives, {len(gaps)} with gaps or doubles {gaps}")
sys.exit(0 if sequences and not gaps else 1)
