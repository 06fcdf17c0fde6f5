# SPDX-License-Identifier: Apache-2.0
"""Part `cost`: the steps of one running job while Kansoku records it, or the agent watches it, against its steps without, in alternating windows."""
import contextlib
import os
import statistics
import tempfile
import time

import environment
import kit
from lab import LAUNCHED, Lab, Run, end_below

PAIRS, WINDOW_S = 12, 4.0
SETTLE_S = 2.5  # a recorder that attached looks for process groups and names first
TARGETS = {"record": 0.03, "agent": 0.01}
ATTACHED_IN_S = 3.0
DEBIANS = "Debian's"
BY_HAND = ["/usr/bin/python3", os.path.join(kit.ROOT, "tests/harness/launch.py")]  # Debian's torchrun does not run on its Python
JOBS = {
    "ddp": [*LAUNCHED, "train.py", "launched", "ddp"],
    "fsdp": [*LAUNCHED, "train.py", "launched", "fsdp"],
    "lightning": ["python3", "lightning_job.py"],
    DEBIANS + " ddp": [*BY_HAND, "train.py", "launched", "ddp"],
}


def step_ends(path):
    with open(path, encoding="ascii") as file:
        return [float(line) for line in file if line.endswith("\n")]


@contextlib.contextmanager
def running(lab, name, folder):
    """The launcher of a job that trains, and the file of its steps."""
    log = os.path.join(folder, "steps")
    settings = lab.settings(STEPS="100000000", STEP_LOG=log, OMP_NUM_THREADS="1")
    with open(os.path.join(folder, "said"), "w", encoding="utf-8") as said, kit.Job(lab.command(JOBS[name]), env=settings, stdout=said, stderr=said) as job:
        try:
            job.wait_for(lambda: os.path.exists(log) and len(step_ends(log)) > 50, "steps of the job", 120)
            yield job, log
        finally:
            end_below(job.pid)


def window(is_on, job):
    time.sleep(SETTLE_S)  # allowed: the first steps behind a switch are neither
    begin = time.time()
    time.sleep(WINDOW_S)  # allowed: the window that is measured
    kit.expect(job.poll() is None, "the job has ended")
    return is_on, begin, time.time()


def with_record(lab, job, folder):
    """Windows in pairs, on first and off first in turn; seconds until four ranks are attached."""
    windows, seconds = [], []
    for index in range(PAIRS):
        pair = [] if index % 2 == 0 else [window(False, job)]
        begin = time.monotonic()
        with kit.Recorder(lab.kansoku, os.path.join(folder, "run.pftrace"), "--force", pids=[job.pid]):
            seconds.append(time.monotonic() - begin)
            pair.append(window(True, job))
        windows += pair if len(pair) == 2 else [*pair, window(False, job)]
    return windows, seconds


def with_agent(lab, job, folder):
    state, windows = os.path.join(folder, "state"), []
    with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
        with kit.Job([lab.kansoku, "watch", "--state", state, "--no-history"], "SIGINT", 30, stdout=log, stderr=log) as agent:
            agent.wait_for(lambda: ": learning" in open(log.name, encoding="utf-8").read(), "a job that the agent learns")
            for index in range(2 * PAIRS):
                is_on = index % 4 in (0, 3)
                kit.switch_agent(lab.kansoku, state, "resume" if is_on else "pause")
                windows.append(window(is_on, job))
    return windows, []


def measured(lab, name, how):
    with tempfile.TemporaryDirectory() as folder, running(lab, name, folder) as (job, log):
        windows, attached = {"record": with_record, "agent": with_agent}[how](lab, job, folder)
        ends = step_ends(log)
    changes = kit.pair_changes(windows, ends)
    kit.expect(len(changes) > PAIRS / 2, "too few windows with steps")
    median, low, high = kit.median_interval(changes)
    off_ms = [1e3 * step for is_on, begin, end in windows if not is_on and (step := kit.mean_step_s(ends, begin, end))]
    wrong = [f"{median:+.2%}, target {TARGETS[how]:+.0%}"] if median > TARGETS[how] else []
    if attached and statistics.median(attached) >= ATTACHED_IN_S:
        wrong.append(f"attached in {statistics.median(attached):.1f} s")
    return {"wrong": wrong, "changes": changes, "ratio": 1 + median, "low": 1 + low, "high": 1 + high, "pairs": len(changes),
            "step_off_ms": statistics.median(off_ms), "attached_s": statistics.median(attached) if attached else None}


def shown(result):
    attached = "" if result["attached_s"] is None else f", attached in {result['attached_s']:.1f} s"
    return (f"{result['ratio']:.3f} ({result['low']:.3f} to {result['high']:.3f}, {result['pairs']} pairs, step {result['step_off_ms']:.1f} ms"
            f"{attached})")


class DebiansLab(Lab):
    """The machine's own Python and its PyTorch."""

    def __init__(self, kansoku):
        super().__init__(kansoku, environment.DEFAULT)
        self.bin = "/usr/bin"


def cost(lab):
    for name in JOBS:
        for how in TARGETS:
            one = DebiansLab(lab.kansoku) if name.startswith(DEBIANS) else lab
            yield Run("cost", f"{name}, {how}", JOBS[name], None, True, 1), lambda one=one, name=name, how=how: measured(one, name, how)
