#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check_scopes.py STATE FEATURES FOLDER PID: what the agent with that state folder tells of the data loader and the optimizer of
load_and_step.py in FOLDER, before its probes were off and after that. They are taken off in the midst of the data loader and put back
outside of it. Prints JSON: medians of the shares of both in FEATURES."""
import json
import os
import statistics
import sys
import time

from features import control, known, rows_of, wait_until, windows_within

state, path, folder, pid = sys.argv[1:5]
WINDOWS = 4


def windows(begin):
    """In which the probes were on all the time."""
    return [row for row in windows_within(rows_of(path, "pid", pid), begin) if float(row["step_rate"] or 0) > 0]


def shares(begin):
    wait_until(f"{WINDOWS} windows with steps", lambda: len(windows(begin)) >= WINDOWS)
    return {name: statistics.median(known(windows(begin), f"{name}_share")) for name in ("input", "optimizer")}


def hold(place):
    open(os.path.join(folder, place), "w", encoding="utf-8").close()


def wait_for_place(place):
    wait_until(f"a job that is {place}", lambda: os.path.exists(os.path.join(folder, f"is-{place}")))


before = shares(0)
hold("in")
wait_for_place("in")
hold("out")  # now: a job that stands outside first would never come in
control(state, "pause")
os.remove(os.path.join(folder, "in"))
wait_for_place("out")
control(state, "resume")
os.remove(os.path.join(folder, "out"))
after = shares(time.time())
print(json.dumps({"before": before, "after": after}))
