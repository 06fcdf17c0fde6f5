# SPDX-License-Identifier: Apache-2.0
"""What the checks of features share: rows of `kansoku watch --features`, windows that lie wholly within a time, waiting for them."""
import csv
import os
import subprocess
import sys
import time

WAIT_S, LOOK_EVERY_S = 120, 0.1  # longer than anything takes


def control(state, word):
    """Tells the agent of that state folder; the time at which it had done so."""
    subprocess.run(["kansoku", "watch", "--control", word, "--state", state], check=True, stdout=subprocess.DEVNULL)
    return time.time()


def rows_of(path, name, value):
    """Whole rows of a file that grows, in the order of time; none if it is not there yet."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row[name] == value and None not in row.values()]


def windows_within(rows, begin, end=float("inf")):
    """Of rows of one process: those whose windows began behind `begin` and ended before `end`. A window is as long as the machine lets it
    be, so it began when the one before it ended."""
    times = [float(row["time_s"]) for row in rows]
    return [row for row, before, time_s in zip(rows[1:], times, times[1:]) if begin < before and time_s <= end]


def known(rows, name):
    return [float(row[name]) for row in rows if row[name]]


def wait_until(what, holds):
    """Until holds() is true."""
    end = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"waited {WAIT_S} s for {what}")
        time.sleep(LOOK_EVERY_S)  # allowed: between two looks
