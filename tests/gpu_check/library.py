#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""library.py FOLDER [torch] [--perturb]: the recordings of library.sh against what the programs wrote; a line each check."""
import json
import os
import sys

FOLDER = sys.argv[1]
PERTURB = "--perturb" in sys.argv
failed = 0


def own(name):
    """What a program wrote of itself."""
    try:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            values = {key: float(value) for key, value in (line.split() for line in file)}
    except OSError:
        return {}
    return {key: value + 1 if PERTURB else value for key, value in values.items()}


def written(name):
    try:
        with open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def rows(report, what):
    return report.get(what) or []


def check(name, is_right, text):
    global failed
    failed += 0 if is_right else 1
    print(f"{'passed ' if is_right else 'failed '}  library.{name:<28} {text}")


def counts(name, report, program, kernels):
    got = {row["name"]: row["count"] for row in rows(report, "kernels")}
    wanted = {kernel: program.get(kernel) for kernel in kernels}
    check(name, all(count is not None and got.get(kernel) == count for kernel, count in wanted.items()),
          ", ".join(f"{kernel} {got.get(kernel)} of {count if count is None else int(count)}" for kernel, count in wanted.items()))


def times():
    report, program = written("times"), own("times")
    counts("launches_by_kernel", report, program, ("library_long", "library_short"))
    for kernel, key in (("library_long", "long_us"), ("library_short", "short_us")):
        found = [row["us"]["p50"] for row in rows(report, "kernels") if row["name"] == kernel and (row["us"] or {}).get("p50")]
        mine = program.get(key, 0) * (0.001 if PERTURB else 1)
        # The library's events lie within the program's: its time is never longer, but for the clock's steps.
        check("time_of_" + kernel.removeprefix("library_"), len(found) == 1 and 0 < found[0] <= 1.02 * mine + 2,
              f"half of them within {sum(found):.1f} us, {mine:.1f} us between the program's own events: {sum(found) / mine if mine else 0:.3f}")
    clocks = [note for note in rows(report, "notes") if note.startswith("device times of context")]
    check("clock", len(clocks) == (2 if PERTURB else 1), "; ".join(clocks))
    copied = {row["pageable"]: row["bytes"] for row in rows(report, "copies") if row["kind"] == "DtoH"}
    for key, is_pageable in (("pageable", True), ("pinned", False)):
        check("bytes_to_" + key, key in program and copied.get(is_pageable) == program[key], f"{copied.get(is_pageable)} of {program.get(key)}")


def events():
    report, program = written("events"), own("events")
    counts("queries_of_another_thread", report, program, ("library_short",))
    check("queries_do_not_fail", program.get("query_errors") == 0, f"{program.get('queries', 0):.0f} queries, {program.get('query_errors')} errors")
    forward, backward = program.get("forward_ms", 0), program.get("backward_ms", 0)
    check("time_runs_backwards", backward < 0 < forward and abs(forward + backward) < 1e-3, f"{forward:.6f} ms, {backward:.6f} ms")
    print(f"         a pair of events costs {own('alone').get('pair_ns', 0):.0f} ns here, {program.get('pair_ns', 0):.0f} with the library at work")


def stuck():
    report, program, hang = written("stuck"), own("stuck"), written("hang")
    verdicts = hang.get("processes") or [{}]
    named = json.dumps(hang)
    wanted = "another_kernel" if PERTURB else "library_spin"
    check("stuck_kernel", verdicts[0].get("verdict") == "stuck_kernel" and wanted in named, f"{verdicts[0].get('verdict')}: {wanted}")
    counts("it_ends_when_told", report, program, ("library_spin",))


def torch():
    report, program = written("torch"), own("torch")
    got = sum(row["count"] for row in rows(report, "kernels"))
    total = sum(row["total_us"] or 0 for row in rows(report, "kernels"))
    check("torch_launches", got == program.get("kernels"), f"{got} kernels, {program.get('kernels')} by its profiler")
    mine = program.get("kernel_us", 0)
    # Events lie around a kernel, so no sum of theirs is shorter than the kernels themselves.
    check("torch_times", 0 < 0.98 * mine <= total, f"{total:.1f} us, {mine:.1f} us by its profiler: {total / mine if mine else 0:.3f}")


if "torch" in sys.argv:
    torch()
else:
    times()
    events()
    stuck()
sys.exit(1 if failed else 0)
