#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check_probes.py STATE FEATURES JOB: what the agent with that state folder tells of a job while its probes are off, and of a rank that
a debugger stops and leaves.

Pauses the agent for five seconds and resumes it, then attaches to rank 0 as a debugger does and lets go. Prints JSON about FEATURES."""
import csv
import ctypes
import json
import os
import subprocess
import sys
import time

PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
state, path, job = sys.argv[1:4]


def control(word):
    subprocess.run(["kansoku", "watch", "--control", word, "--state", state], check=True, stdout=subprocess.DEVNULL)
    return time.time()


def rows():
    with open(path, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["job"] == job]


def between(begin, end, name):
    return [float(row[name]) if row[name] else None for row in rows() if begin < float(row["time_s"]) <= end]


def stop_as_a_debugger(pid):
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (PTRACE_ATTACH, PTRACE_DETACH):
        if ptrace(request, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
        if request == PTRACE_ATTACH:
            os.waitpid(pid, WALL)


def known(values):
    return [value for value in values if value is not None]


begin = time.time()
time.sleep(4)
paused = control("pause")
time.sleep(5)
resumed = control("resume")
time.sleep(4)
rank0 = next(int(row["pid"]) for row in reversed(rows()) if row["rank"] == "0")
stop_as_a_debugger(rank0)
debugged = time.time()
time.sleep(4)
usual = known(between(begin, paused, "step_mean"))
print(json.dumps({
    "steps_before": len(usual),
    "rates_while_off": len(known(between(paused + 1, resumed, "step_rate"))),
    "means_while_off": len(known(between(paused + 1, resumed, "step_mean"))),
    "cpu_while_off": len(known(between(paused + 1, resumed, "cpu_cores"))),
    "steps_after": len(known(between(resumed, debugged, "step_mean"))),
    "longest_after": max(known(between(resumed, debugged, "step_max")), default=99) / max(usual, default=1),
    "stopped_after_debugger": max(known(between(debugged + 2, debugged + 9, "stopped_share")), default=9),
}))
