# SPDX-License-Identifier: Apache-2.0
"""The part `hangs` of run.py: jobs that stand, told by `kansoku hang` that comes late and by a recording that was there before; jobs that are slow
at that moment; jobs that break off."""
import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import time

import kit
from lab import LAUNCHED, Run, end_below, shown

# What stands on rank 2, and where the answer has to say that it does.
HANGS = {
    "stop": ("dead_process", None), "absent": ("missing_rank", "clean_up_after_error"), "loop": ("missing_rank", "search_best_split"),
    "native": ("missing_rank", "derive_key"), "asleep": ("missing_rank", "clean_up_after_error"), "more": ("mismatched_collective", "stand"),
    "less": ("mismatched_collective", "stand"), "receive": ("missing_rank", "stand"), "lock": ("deadlock", "run"),
    "order": ("mismatched_collective", "reduce_statistics"), "pipe": ("missing_rank", "save_checkpoint"), "worker": ("stuck_input", "read_remote_shard"),
}
BROKEN = {"killed": "stopped", "shape": "stopped"}  # the job ends by itself
SLOW = ("slow=30", "save=30", "program=30", "compile=30")
STANDS_S = 20  # before somebody looks
RECORDED_S = 45  # from the job's start; a hang begins after some ten


@contextlib.contextmanager
def started(lab, words, mode, **settings):
    with kit.Job(lab.command([*LAUNCHED, "hang.py", *words]), env=lab.settings(MODE=mode, **settings), stdout=subprocess.PIPE,
                 stderr=subprocess.STDOUT, text=True) as job:
        try:
            yield job
        finally:
            end_below(job.pid)


def looked_at(lab, words, mode, wait_s):
    """What `kansoku hang` says of a job that has been at its step for so long, how many seconds it takes, and what its recording says later."""
    with tempfile.TemporaryDirectory() as folder, started(lab, words, mode) as job:
        if words[0] != "absent":
            kit.expect(any("at step" in line for line in job.stdout), "the job never came to its step")
        time.sleep(wait_s)  # allowed: the hang has to stand for a while
        kit.expect(job.poll() is None, "the job ended")
        begin = time.monotonic()
        trace = os.path.join(folder, "look.pftrace")
        command = [lab.kansoku, "hang", "-p", str(job.pid), "--json", "-o", trace]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        seconds = time.monotonic() - begin
        kit.expect(done.stdout.startswith("{"), f"hang: status {done.returncode}: {done.stderr[-2000:]}")
        answer = json.loads(done.stdout)
        later = [shown(one) for one in standing(lab.diagnosed(trace))]
        kit.expect(later == [shown(one) for one in standing(answer["diagnosis"])], f"its recording says {later}")
        return answer, done.returncode, seconds


def standing(diagnosis):
    return [one for one in diagnosis["findings"] if one["kind"] in ("hang", "stopped")]


def misses(kind, diagnosis):
    """What is wrong with the finding on a hang, in words."""
    verdict, function = HANGS[kind]
    found = standing(diagnosis)
    if not found:
        return [f"nobody is named; notes {diagnosis['notes']}"]
    first, wrong = found[0], []
    wrong += [] if first["ranks"] in ([[], [2]] if kind == "order" else [[2]]) else [f"ranks {first['ranks']}"]
    wrong += [] if first["verdict"] == verdict else [f"{first['verdict']}, not {verdict}"]
    wrong += [] if function is None or function in (first["function"] or "") else [f"in {first['function']}"]
    return wrong


def hung(lab, kind, mode):
    answer, status, seconds = looked_at(lab, [kind], mode, STANDS_S)
    diagnosis = answer["diagnosis"]
    wrong = misses(kind, diagnosis)
    wrong += [] if status == 10 else [f"status {status}"]
    wrong += [] if seconds < 10 else [f"in {seconds:.0f} s"]
    return {"wrong": wrong, "findings": [shown(one) for one in standing(diagnosis)] + diagnosis["notes"], "steps": 0, "seconds": seconds}


def noted(lab, kind):
    """A version without calls in memory: a rank at work may come yet, and a note says where it is."""
    answer, status, _ = looked_at(lab, [kind], "ddp", STANDS_S)
    diagnosis = answer["diagnosis"]
    wrong = [f"named: {shown(one)}" for one in standing(diagnosis)]
    wrong += [] if any(HANGS[kind][1] in note for note in diagnosis["notes"]) else [f"notes {diagnosis['notes']}"]
    wrong += [] if status == 11 else [f"status {status}"]
    return {"wrong": wrong, "findings": diagnosis["notes"], "steps": 0}


def recorded(lab, kind, mode):
    """The same hang, in a recording that began with the job."""
    with tempfile.TemporaryDirectory() as folder, started(lab, [kind], mode, AT="60") as job:
        trace = os.path.join(folder, "run.pftrace")
        done = kit.record(lab.kansoku, trace, "-q", "--force", "--duration", f"{RECORDED_S}s", pids=[job.pid], timeout=120)
        kit.expect(done.returncode == 0, f"record: {done.stderr[-2000:]}")
        answer = lab.diagnosed(trace)
    return {"wrong": misses(kind, answer), "findings": [shown(one) for one in answer["findings"]] + answer["notes"], "steps": answer["steps"]["count"]}


def broken(lab, kind, mode):
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.pftrace")
        done = kit.record(lab.kansoku, trace, "-q", "--force", "--duration", "100s", "--then", "kill", of=lab.command([*LAUNCHED, "hang.py", kind]),
                          env=lab.settings(MODE=mode, AT="60"), timeout=150)
        kit.expect("the recording has ended" not in done.stderr, "the job did not break off")
        answer = lab.diagnosed(trace)
    found = answer["findings"]
    wrong = [] if found and (found[0]["kind"], found[0]["ranks"]) == (BROKEN[kind], [2]) else ["rank 2 is not named first"]
    return {"wrong": wrong, "findings": [shown(one) for one in found] + answer["notes"], "steps": answer["steps"]["count"]}


def slow(lab, kind, mode):
    answer, _, _ = looked_at(lab, [kind], mode, 15)
    found = [shown(one) for one in standing(answer["diagnosis"])]
    return {"wrong": found, "findings": found + answer["diagnosis"]["notes"], "steps": 0}


def hangs(lab):
    def run(name, how, *words, number=1):
        return Run("hangs", name, [], 2, True, number), lambda: how(lab, *words)
    for mode, kind in itertools.product(("ddp", "fsdp"), HANGS):
        yield run(f"{kind}, {mode}", hung, kind, mode)
        yield run(f"{kind}, {mode}, recorded", recorded, kind, mode)
    for mode, kind in itertools.product(("ddp", "fsdp"), BROKEN):
        yield run(f"{kind}, {mode}, recorded", broken, kind, mode)
    for mode, kind in itertools.product(("ddp", "fsdp"), SLOW):
        for number in (1, 2) if mode == "ddp" else (1,):
            yield run(f"{kind}, {mode}", slow, kind, mode, number=number)
