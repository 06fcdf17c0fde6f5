#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check_features.py FILE JOB RANKS: what `kansoku watch --features` wrote holds every rank of the job, with figures that close.

Prints JSON: rows, ranks, features that were ever seen, and whether collectives, steps and processor time make sense."""
import csv
import json
import sys

path, job, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(path, encoding="utf-8", newline="") as file:
    rows = [row for row in csv.DictReader(file) if row["job"] == job]


def numbers(name):
    return [float(row[name]) for row in rows if row[name]]


steps, collectives = sum(numbers("step_rate")), sum(numbers("collective_rate"))
shares = [value for name in ("input_share", "optimizer_share", "gc_share") for value in numbers(name)]
products = [float(row["step_mean"]) * float(row["step_rate"]) for row in rows if row["step_mean"] and float(row["step_rate"] or 0) > 0]
answers = {
    "rows": len(rows),
    "ranks": sorted({int(row["rank"]) for row in rows}) == list(range(ranks)),
    "one_process_a_rank": len({(row["rank"], row["pid"]) for row in rows}) == ranks,
    "has_steps": steps > 0,
    "collectives_a_step": round(collectives / steps, 1) if steps else 0,
    "step_mean_is_inverse_of_rate": sum(0.5 < product < 2 for product in products) > 0.8 * len(products) > 0,
    "shares_below_one": bool(shares) and all(0 <= share <= 1.2 for share in shares),
    "has_cpu": max(numbers("cpu_cores"), default=0) > 0.05,
    "has_tcp": max(numbers("tcp_bytes"), default=0) > 0,
    "has_memory": min(numbers("resident_bytes"), default=0) > 1e7,
}
print(json.dumps({name: int(value) if isinstance(value, bool) else value for name, value in answers.items()}))
