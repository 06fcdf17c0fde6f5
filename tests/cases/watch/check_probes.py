#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check_probes.py STATE FEATURES JOB: what the agent with that state folder tells of rank 0 of a job while its probes are off, and of a
rank that a debugger stops and leaves.

Pauses the agent for far longer than a step takes and resumes it, then attaches to rank 0 as a debugger does and lets go. Prints JSON
about FEATURES."""
import ctypes
import json
import os
import sys
import time

from features import control, known, rows_of, wait_until, windows_within

PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
WINDOWS = 4
STEPS_OFF = 10  # of the longest so far: how long the probes are off at least
state, path, job = sys.argv[1:4]


def windows(begin, end=float("inf")):
    return windows_within([row for row in rows_of(path, "job", job) if row["rank"] == "0"], begin, end)


def wait_for_windows(begin, feature):
    wait_until(f"{WINDOWS} windows with {feature}", lambda: len(known(windows(begin), feature)) >= WINDOWS)


def stop_as_a_debugger(pid):
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (PTRACE_ATTACH, PTRACE_DETACH):
        if ptrace(request, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
        if request == PTRACE_ATTACH:
            os.waitpid(pid, WALL)


wait_for_windows(0, "step_mean")
longest_before = max(known(windows(0), "step_max"))
paused = control(state, "pause")
wait_for_windows(paused, "cpu_cores")
wait_until("a pause of many steps", lambda: time.time() > paused + STEPS_OFF * longest_before)
off = windows(paused, time.time())
resumed = control(state, "resume")
wait_for_windows(resumed, "step_mean")
stop_as_a_debugger(int(windows(resumed)[-1]["pid"]))
debugged = time.time()
wait_for_windows(debugged, "stopped_share")
print(json.dumps({
    "rates_while_off": len(known(off, "step_rate")),
    "means_while_off": len(known(off, "step_mean")),
    "cpu_while_off": len(known(off, "cpu_cores")),
    "longest_after_in_pauses": max(known(windows(resumed, debugged), "step_max")) / (resumed - paused),
    "stopped_after_debugger": max(known(windows(debugged), "stopped_share")),
}))
