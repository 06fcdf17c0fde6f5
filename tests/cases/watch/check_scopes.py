#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check_scopes.py STATE FEATURES FOLDER PID: what the agent with that state folder tells of the data loader and the optimizer of
load_and_step.py in FOLDER, before its probes were off and after that. They are taken off in the midst of the data loader and put back
outside of it. Prints JSON: medians of the shares of both in FEATURES."""
import csv
import json
import os
import statistics
import subprocess
import sys
import time

state, path, folder, pid = sys.argv[1:5]
WINDOWS = 4


def control(word):
    subprocess.run(["kansoku", "watch", "--control", word, "--state", state], check=True, stdout=subprocess.DEVNULL)


def shares(name, begin):
    """Of whole windows in which the probes were on all the time."""
    with open(path, encoding="utf-8", newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row["pid"] == pid and float(row["time_s"]) > begin + 2 and row[name]]


def wait_for(begin):
    until = time.time() + 30
    while len(shares("step_rate", begin)) < WINDOWS and time.time() < until:
        time.sleep(0.5)
    return {name: statistics.median(shares(f"{name}_share", begin) or [0]) for name in ("input", "optimizer")}


def hold(*places):
    for place in places:
        open(os.path.join(folder, place), "w", encoding="utf-8").close()


def wait_until(place):
    until = time.time() + 30
    while not os.path.exists(os.path.join(folder, f"is-{place}")):
        if time.time() > until:
            sys.exit(f"the job is not {place}")
        time.sleep(0.02)


before = wait_for(0)
hold("in", "out")
wait_until("in")
control("pause")
os.remove(os.path.join(folder, "in"))
wait_until("out")
control("resume")
os.remove(os.path.join(folder, "out"))
after = wait_for(time.time())
print(json.dumps({"before": before, "after": after}))
