#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes test data of a part of the evaluation: thin.py FOLDER OUT.csv.gz [SECONDS|whole]

The rows of the job's ranks, columns that have values, four significant digits. Of a part with faults, the time from 20 s before each fault
to 25 s behind it, and OUT.truth.jsonl with their times; else the first SECONDS [480] behind the first half minute; `whole`: all of it."""
import csv
import gzip
import json
import os
import sys

BEFORE_S, BEHIND_S, START_S = 20.0, 25.0, 30.0
META = ("time_s", "job", "rank", "pid")


def short(text):
    return f"{float(text):.4g}" if text else ""


def main():
    folder, out, wanted = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["480"])[0]
    with open(os.path.join(folder, "part.json"), encoding="utf-8") as file:
        pids = {str(pid) for pid in json.load(file)["ranks"]}
    with open(os.path.join(folder, "features.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if None not in row.values() and row["pid"] in pids]
    truth_path, truth = os.path.join(folder, "truth.jsonl"), []
    if os.path.exists(truth_path):
        with open(truth_path, encoding="utf-8") as file:
            truth = [fault for fault in map(json.loads, file) if "end_s" in fault]
    begin_s = min(float(row["time_s"]) for row in rows)
    spans = [(f["begin_s"] - BEFORE_S, f["end_s"] + BEHIND_S) for f in truth]
    if wanted == "whole":
        spans = [(begin_s, float("inf"))]
    elif not truth:
        spans = [(begin_s + START_S, begin_s + START_S + float(wanted))]
    rows = [row for row in rows if any(a <= float(row["time_s"]) <= b for a, b in spans)]
    columns = [name for name in rows[0] if name not in META and any(row[name] for row in rows)]
    with gzip.GzipFile(out, "wb", 9, mtime=0) as packed:
        packed.write((",".join(("time_s", "job", "rank", *columns)) + "\n").encode())
        for row in rows:
            time_s = f"{float(row['time_s']) - begin_s:.2f}"
            packed.write((",".join((time_s, "job", row["rank"], *(short(row[name]) for name in columns))) + "\n").encode())
    if truth:
        with open(out.removesuffix(".csv.gz") + ".truth.jsonl", "w", encoding="utf-8") as file:
            for fault in truth:
                kept = {name: fault[name] for name in ("kind", "dose", "ranks")}
                file.write(json.dumps({**kept, "begin_s": round(fault["begin_s"] - begin_s, 2), "end_s": round(fault["end_s"] - begin_s, 2)}) + "\n")


if __name__ == "__main__":
    main()
