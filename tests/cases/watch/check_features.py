#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check_features.py FILE JOB RANKS: what `kansoku watch --features` wrote holds every rank of the job, with figures that close.

Prints JSON: the least windows with steps of any rank, features that were ever seen, and whether collectives, steps and processor time
make sense over all windows together: a single one holds as many steps as the machine lets it."""
import json
import sys

from features import known, rows_of

path, job, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = rows_of(path, "job", job)
by_rank = {str(rank): [row for row in rows if row["rank"] == str(rank)] for rank in range(ranks)}
settled = [row for row in rows if row["step_rate"] and row["step_mean"]]  # from the first step on


def mean(values):
    return sum(values) / len(values) if values else 0


steps, collectives = sum(known(settled, "step_rate")), sum(known(settled, "collective_rate"))
busy = mean([float(row["step_mean"]) * float(row["step_rate"]) for row in settled])
shares = [mean(known(settled, name)) for name in ("input_share", "optimizer_share", "gc_share")]
answers = {
    "windows": min(sum(float(row["step_rate"] or 0) > 0 for row in of_rank) for of_rank in by_rank.values()),
    "ranks": sorted({int(row["rank"]) for row in rows}) == list(range(ranks)),
    "one_process_a_rank": len({(row["rank"], row["pid"]) for row in rows}) == ranks,
    "collectives_a_step": round(collectives / steps, 1) if steps else 0,
    "step_mean_is_inverse_of_rate": 0.5 < busy < 2,
    "shares_below_one": any(known(settled, "input_share")) and all(0 <= share <= 1.2 for share in shares),
    "has_cpu": max(known(rows, "cpu_cores"), default=0) > 0.05,
    "has_tcp": max(known(rows, "tcp_bytes"), default=0) > 0,
    "has_memory": min(known(rows, "resident_bytes"), default=0) > 1e7,
}
print(json.dumps({name: int(value) if isinstance(value, bool) else value for name, value in answers.items()}))
