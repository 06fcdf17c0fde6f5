#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the collectives in a decoded trace with what the job itself counted: compare_counts.py TRACE.json FOLDER"""
import glob
import json
import sys

with open(sys.argv[1], encoding="utf-8") as trace:
    collectives = json.load(trace)["slices"].get("collective", {})
true = {}
for path in sorted(glob.glob(sys.argv[2] + "/rank*.json")):
    with open(path, encoding="utf-8") as rank:
        for name, count in json.load(rank)["calls"].items():
            true[name] = true.get(name, 0) + count
status = 0 if true else 1
for name, count in true.items():
    issued = collectives.get(f"c10d::ProcessGroupGloo::{name}", {"count": 0, "unended": 0})
    executed = collectives.get(f"gloo::{name}", {"count": 0, "unended": 0})
    same = count == issued["count"] == executed["count"] and issued["unended"] == executed["unended"] == 0
    print(f"{name}: job {count}, issued {issued['count']}, executed {executed['count']}: {'equal' if same else 'DIFFERENT'}")
    status = status if same else 1
sys.exit(status)
