#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_names.py PAGE RESULT...: are all metrics and series of the results on the page?"""
import json
import re
import sys

page = open(sys.argv[1], encoding="utf-8").read()
known = set()
for line in page.splitlines():
    if line.startswith("Series: "):
        cell = line
    elif match := re.match(r"\| (`[a-z]+\.[A-Z]\.[^|]*)\|", line):
        cell = match.group(1)
    else:
        continue
    full = ""
    for name in re.findall(r"`([^`]*)`", cell):
        if name.startswith("."):  # the same entity, another figure
            name = full.rsplit(".", 1)[0] + name
        elif name.startswith("_"):  # another quantile
            name = re.sub(r"_mean_s$", name, full)
        else:
            full = name
        known.add(name)

seen = set()
for path in sys.argv[2:]:
    result = json.load(open(path, encoding="utf-8"))
    for row in result["metrics"] + result["series"]:
        parts = row["name"].split(".")
        entity = {"cluster": "C", "pipeline": "P", "task": "P.T", "store": "S", "models": "M"}[parts[0]]
        seen.add(f"{parts[0]}.{entity}.{parts[-1]}")
unknown = sorted(seen - known)
print("names", len(seen), "unknown", len(unknown), *unknown)
