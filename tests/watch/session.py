# SPDX-License-Identifier: Apache-2.0
"""One part of the evaluation: a job, an agent that watches it, faults with their truth, all in one folder.

truth.jsonl      a line a fault: kind, job, ranks, dose, begin_s, end_s, what the mean step was before and during it
incidents.jsonl  what the agent wrote; arrivals.jsonl: the same lines, each with the time at which it was seen
features.csv     what the agent measured
part.json        written last: a folder without it is of a part that was interrupted
"""
import json
import os
import shutil
import subprocess
import threading
import time

from kit import Impossible, expect, need
from jobs import JOBS

from faults import KINDS, culprits, plant, victims_of

POLL_S = 0.05  # resolution of the arrival of an incident
BEFORE_S, SETTLE_S = 15.0, 1.0  # steps compared: so long before a fault, and from so long after its begin or the last one's end


class Agent:
    """`kansoku watch` in a process of its own; stamps each line of its incidents with the time of its arrival."""

    def __init__(self, guard, options, folder, state, seconds, environment=None):
        self.incidents, self.arrivals = os.path.join(folder, "incidents.jsonl"), os.path.join(folder, "arrivals.jsonl")
        need("watch" in subcommands(options.kansoku), f"{options.kansoku} has no `watch`")
        command = [options.kansoku, "watch", "--state", state, "--learn", f"{options.learn_s}s", "--for", f"{int(seconds)}s", "--features",
                   os.path.join(folder, "features.csv"), "--incidents", self.incidents, "--listen", "127.0.0.1:0"]
        self.log = os.path.join(folder, "agent.log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command + options.agent_options, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, env={**os.environ, **(environment or {})})
        self.guard, self.ticket = guard, guard.watch(self.process, "SIGTERM")
        self.over = threading.Event()
        self.reader = threading.Thread(target=self.stamp, daemon=True)
        self.reader.start()

    def stamp(self):
        offset, rest = 0, b""
        with open(self.arrivals, "w", encoding="utf-8") as out:
            last = False
            while not last:
                last = self.over.wait(POLL_S)
                if not os.path.exists(self.incidents):
                    continue
                with open(self.incidents, "rb") as file:
                    file.seek(offset)
                    new = file.read()
                offset += len(new)
                *lines, rest = (rest + new).split(b"\n")
                for line in lines:
                    out.write(json.dumps({"arrived_s": time.time(), **read_incident(line)}) + "\n")
                out.flush()

    def check(self):
        expect(self.process.poll() is None, f"the agent has ended with status {self.process.returncode}; see {self.log}")

    def stop(self):
        self.guard.undo(self.ticket)
        self.over.set()
        self.reader.join()


def read_incident(line):
    try:
        return {"incident": json.loads(line)}
    except ValueError:
        return {"unreadable": line.decode(errors="replace")}


def subcommands(kansoku):
    done = subprocess.run([kansoku, "--help"], capture_output=True, text=True, check=False)
    return [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.split()]


def mean_step_ms(ends, begin_s, end_s):
    """Not the median: bursts lengthen few steps by much."""
    inside = [end for end in ends if begin_s <= end <= end_s]
    return round((inside[-1] - inside[0]) / (len(inside) - 1) * 1000, 2) if len(inside) >= 3 else None


def pause(seconds, *watched):
    """Sleeps; raises when the job or the agent ends meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for process in watched:
            process.check()
        time.sleep(min(left, 0.5))


def add_line(path, record):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def plant_one(job, kind, dose, ranks, on_s, watched, before_s=BEFORE_S):
    """Plants it, waits, undoes it; returns the truth. What cannot be planted here is said in the truth."""
    truth = {"kind": kind.name, "job": job.NAME, "dose": dose, "unit": kind.unit, "ranks": culprits(kind, ranks), "begin_s": time.time()}
    try:
        tickets = plant(job, kind, ranks, dose)
    except Impossible as reason:
        return {**truth, "not_run": str(reason)}
    pause(on_s, *watched)
    job.guard.undo(*tickets)
    truth["end_s"] = time.time()
    ends = job.steps()
    truth["step_before_ms"] = mean_step_ms(ends, truth["begin_s"] - before_s, truth["begin_s"])
    truth["step_during_ms"] = mean_step_ms(ends, truth["begin_s"] + SETTLE_S, truth["end_s"])
    return truth


def say(truth):
    if "not_run" in truth:
        return f"{truth['kind']} {truth['dose']}: not run: {truth['not_run']}"
    before, during = truth["step_before_ms"], truth["step_during_ms"]
    grown = f"{before:.0f} -> {during:.0f} ms" if before and during else f"{before or 0:.0f} -> no steps"
    return f"{truth['kind']} {truth['dose']} {truth['unit']}, rank {truth['ranks'] or 'none'}: step {grown}"


def run_faults(job, agent, plan, rng, off_s, end_s, folder, on_s=None):
    """`plan` yields (name of a kind, dose) as long as there is time for one more; `end_s`: monotonic."""
    watched = [job, *([agent] if agent else [])]
    for name, dose in plan:
        kind = KINDS[name]
        takes_s = on_s or kind.on_s
        peace_s = off_s + kind.settle_s if off_s else 0
        if end_s and time.monotonic() + takes_s + peace_s > end_s:
            return
        truth = plant_one(job, kind, dose, victims_of(kind, job, rng), takes_s, watched,
                          min(BEFORE_S, max(0.0, off_s - SETTLE_S)))
        add_line(os.path.join(folder, "truth.jsonl"), truth)
        print(f"  {say(truth)}", flush=True)
        pause(peace_s, *watched)


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def start_job(guard, name, root, options):
    return JOBS[name](guard, os.path.join(root, f"job-{name}"), {"kansoku": options.kansoku, **options.job_options})


def environment_of(job):
    return job.device_environment() if hasattr(job, "device_environment") else {}
