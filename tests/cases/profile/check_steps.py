#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A window of steps holds the steps that it was asked for, whole, of every rank: check_steps.py TRACE FIRST COUNT RANKS"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cuda"))
import recorded  # noqa: E402

trace, first, count, ranks = sys.argv[1], *map(int, sys.argv[2:5])
found = recorded.read_recording(trace)
problems, seen = [], 0
for key, value in found.metadata.items():
    if not key.startswith("kansoku.steps."):
        continue
    seen += 1
    pid, said = int(key.rsplit(".", 1)[1]), dict(word.split("=", 1) for word in value.split())
    if (said["first"], said["count"]) != (str(first), str(count)):
        problems.append(f"{pid}: {value}")
        continue
    begin, end = int(said["begin_ns"]), int(said["end_ns"])
    steps = sorted(s.begin for s in found.slices if s.name.startswith(said["mark"]) and found.pids.get(s.track) == pid)
    inside = [at for at in steps if begin <= at < end]
    # The first step begins with its mark, and the mark behind the last step ends it.
    if len(inside) != count or inside[0] != begin or end not in steps or said["whole"] != "1":
        problems.append(f"{pid}: {len(inside)} steps from {begin} to {end} among {len(steps)}")
print(f"{seen} ranks with {count} whole steps from step {first} on, {problems}")
sys.exit(1 if problems or seen != ranks else 0)
