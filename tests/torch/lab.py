# SPDX-License-Identifier: Apache-2.0
"""Jobs of one environment of PyTorch, recorded and diagnosed, and an answer held against the hook of jobs/model.py."""
import collections
import contextlib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import environment  # noqa: E402
import kit  # noqa: E402

JOBS = os.path.join(HERE, "jobs")
DOSE_MS, NEAR = 35.0, 0.15
LAUNCHED = ["torchrun", "--nproc-per-node", "4"]
ATTACHED = "10s"

Run = collections.namedtuple("Run", "part name command rank attached number")


def end_below(pid):
    """Ends what a launcher started, which outlives a launcher that is killed."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    below, fresh = {pid}, True
    while fresh:
        fresh = {one for one, parent in parents.items() if parent in below} - below
        below |= fresh
    ticks = {one: kit.start_ticks(one) for one in below - {pid}}
    for one, started in ticks.items():
        with contextlib.suppress(OSError):
            kit.end_process(one, started)


class Lab:
    def __init__(self, kansoku, name):
        self.kansoku, self.name = kansoku, name
        self.bin = os.path.dirname(environment.python_of(name))

    def settings(self, **more):
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1", **more}

    @staticmethod
    def command(words):
        return [os.path.join(JOBS, word) if word.endswith(".py") else word for word in words]

    def of_fault(self, rank, steps, kind="hook"):
        fault = {} if rank is None else {"FAULT": kind, "FAULT_RANK": str(rank), "DOSE": str(DOSE_MS / 1000)}
        return self.settings(STEPS=str(steps), **fault)

    def recorded(self, run, trace, fault="hook"):
        """What the job said."""
        if not run.attached:
            done = kit.record(self.kansoku, trace, "-q", "--force", of=self.command(run.command), env=self.of_fault(run.rank, 120, fault), timeout=300)
            kit.expect(done.returncode == 0, f"the job ended with status {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
            return done.stdout
        with kit.Job(self.command(run.command), env=self.of_fault(run.rank, 100000), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                     text=True) as job:
            try:
                kit.expect(any(line.rstrip().endswith("training") for line in job.stdout), "the job never trained")
                done = kit.record(self.kansoku, trace, "-q", "--force", "--duration", ATTACHED, pids=[job.pid], timeout=120)
                kit.expect(done.returncode == 0, f"record: {done.stderr[-2000:]}")
            finally:
                end_below(job.pid)
        return ""

    def diagnosed(self, path):
        return kit.answer(self.kansoku, "diagnose", "--json", path)


def ranks_of(answer):
    return sorted(one["rank"] for one in answer["steps"].get("phases") or answer.get("patterns") or [])


def blaming(answer):
    """Findings that name some of the ranks, and not all of them."""
    return [one for one in answer["findings"] if 0 < len(one["ranks"]) < max(len(ranks_of(answer)), 2)]


def shown(finding):
    return f"{finding['kind']}{finding['ranks']} {finding['function']} {kit.cost(finding)} {kit.basis(finding)}"


def judged(answer, rank, true_ms):
    """In words, one item for each thing that is wrong."""
    found = blaming(answer)
    if rank is None:
        return [f"blamed: {shown(one)}" for one in found]
    if not found:
        return ["nobody is named"]
    first, wrong = found[0], []
    if first["ranks"] != [rank]:
        wrong.append(f"ranks {first['ranks']}")
    if first["kind"] not in ("slow_forward", "slow_worker"):
        wrong.append(first["kind"])
    if "slow_activation_hook" not in (first["function"] or ""):
        wrong.append(f"in {first['function']}")
    cost = first["cost_ms_per_step"]
    if cost is None or abs(cost - true_ms) > NEAR * true_ms:
        wrong.append(f"{cost} ms for {true_ms:.1f}")
    return wrong


def hook_ms(said, calls_a_step=1):
    """What the hook took a step by its own clock; the dose where the job did not come to say it."""
    told = re.search(r"hook rank=\d+ calls=(\d+) ms=([\d.]+)", said)
    return calls_a_step * (float(told[2]) / int(told[1]) if told and int(told[1]) else DOSE_MS)


def recording(lab, run):
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.pftrace")
        said = lab.recorded(run, trace)
        answer = lab.diagnosed(trace)
    wrong = judged(answer, run.rank, hook_ms(said))
    if ranks_of(answer) != [0, 1, 2, 3]:
        wrong.append(f"ranks of the job: {ranks_of(answer)}")
    return {"wrong": wrong, "findings": [shown(one) for one in answer["findings"]], "steps": answer["steps"]["count"]}
