#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""levels.py [--model mid] [--threads 1,2,4] [--rounds 5] [--seconds 2]: one generation, recorded in turn at operator and at thread level.

For each number of threads: the time of each operator type at operator level against the longest thread's until its last barrier at thread level
(target: within 5 %), and how much of the graphs' time busy threads, barriers and what lies outside of nodes leave unexplained (target: 3 %).
Ratios are medians over pairs of recordings that follow each other. Exit status 1 if a target is missed, 77 without root or builds."""
import os
import statistics
import subprocess
import tempfile

import exact
import models
import kit

WITHIN, UNEXPLAINED = 0.05, 0.03


def record(pid, level, seconds, path):
    subprocess.run([exact.kansoku(), "llm", "record", "-q", "-p", str(pid), "--level", level, "--budget", "none", "--duration", f"{seconds}s", "--force",
                    "-o", path], check=True)
    return exact.report_of(path)


def times(report):
    rows = report["processes"][0]["operators"]
    return {row["op"]: int(row["time_ns"]) / int(row["count"]) for row in rows if row["phase"] == "decode" and int(row["count"]) > 0}


def unexplained(report):
    process = report["processes"][0]
    return max((abs(int(row["unexplained_ns"])) / int(process["graph_ns"]) for row in process["threads"]), default=1.0)


def compare(model, threads, rounds, seconds):
    ratios, left = {}, []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.pftrace")
        words = [models.driver("openmp"), "--model", models.model(model), "--tokens", "10000000", "--threads", str(threads), "--prompt-tokens", "128", "--context",
                 "256"]
        with kit.Job(words, "SIGTERM", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=models.settings("openmp")) as job:
            record(job.pid, "token", 1, path)  # it has begun
            for _ in range(rounds):
                of_operators, of_threads = record(job.pid, "operator", seconds, path), record(job.pid, "thread", seconds, path)
                left.append(unexplained(of_threads))
                one, other = times(of_operators), times(of_threads)
                for op in one.keys() & other.keys():
                    ratios.setdefault(op, []).append(one[op] / other[op])
    missed = 0
    for op, values in sorted(ratios.items()):
        ratio = statistics.median(values)
        missed += abs(ratio - 1) > WITHIN
        print(f"levels threads={threads} op={op} operator_to_thread={ratio:.3f} least={min(values):.3f} most={max(values):.3f}", flush=True)
    missed += statistics.median(left) > UNEXPLAINED or not ratios
    print(f"levels threads={threads} unexplained={statistics.median(left):.5f}", flush=True)
    return missed


def main(report):
    parser = kit.parser(__doc__, False)
    parser.add_argument("--model", default="mid")
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    kit.need_root()
    for threads in options.threads.split(","):
        report.part(f"{threads} threads", compare, options.model, int(threads), options.rounds, options.seconds)


if __name__ == "__main__":
    kit.run(main)
