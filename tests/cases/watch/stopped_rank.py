#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""stopped_rank.py TRUTH SAID: of the faults in TRUTH in which one rank was stopped for half of the time, how many incidents that
`kansoku detect replay --json` SAID begin with them, and how many of those name another rank or kind, or do not say that it was stopped."""
import json
import sys

SLACK_S, BEHIND_S = 2, 10

with open(sys.argv[1], encoding="utf-8") as file:
    faults = [fault for fault in map(json.loads, file) if fault["kind"] == "stop_one" and fault["dose"] >= 0.5]
with open(sys.argv[2], encoding="utf-8") as file:
    said = [line for line in map(json.loads, file) if "begin_ns" in line]
found = other_ranks = other_kinds = without_words = 0
for fault in faults:
    begin, end = fault["begin_s"] - SLACK_S, fault["end_s"] + BEHIND_S
    incidents = [one for one in said if begin <= int(one["begin_ns"]) / 1e9 <= end]
    if not incidents:
        continue
    found += 1
    other_ranks += incidents[-1]["ranks"] != fault["ranks"]
    other_kinds += incidents[-1]["kind"] != "resource_contention"
    without_words += "stopped share" not in incidents[-1]["summary"]
print(json.dumps({"found": found, "missed": len(faults) - found, "other_ranks": other_ranks, "other_kinds": other_kinds,
                  "without_words": without_words}))
