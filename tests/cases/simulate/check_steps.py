#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a recording's steps as simulated with its diagnosis: check_steps.py DIAGNOSIS.json RECORDS.csv EXPERIMENT.toml

RECORDS.csv is of a replay in which no step waits, so that executions are the durations of the workload. Their count, mean, median
and 95th percentile must be those that `kansoku diagnose --json` prints, and so must the mean of each phase over ranks.
"""
import csv
import json
import re
import statistics
import sys


def quantile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        steps = json.load(file)["steps"]
    with open(sys.argv[2], encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    with open(sys.argv[3], encoding="utf-8") as file:
        phases = dict(re.findall(r'name = "(\w+)"  # mean ([\d.]+) s', file.read()))
    ms = [1e3 * (float(row["ended_s"]) - float(row["started_s"])) for row in records]
    wanted = [steps["count"], steps["mean_ms"], steps["median_ms"], steps["p95_ms"]]
    found = [len(ms), statistics.fmean(ms), quantile(ms, 0.5), quantile(ms, 0.95)]
    for phase, mean_s in phases.items():
        wanted.append(statistics.fmean(rank[phase] for rank in steps["phases"]))
        found.append(1e3 * float(mean_s))
    if any(float(row["wait_s"]) > 0 for row in records) or any(abs(a - b) > 0.0015 for a, b in zip(wanted, found)):
        sys.exit(f"wanted {wanted}, found {found}")
    if abs(sum(found[4:]) - statistics.fmean(rank["step"] for rank in steps["phases"])) > 0.01:
        sys.exit("the phases do not sum to the step")
    print(f"steps {len(ms)} phases {len(phases)}")


main()
