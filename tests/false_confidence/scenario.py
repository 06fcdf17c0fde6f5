# SPDX-License-Identifier: Apache-2.0
"""What a scenario is, and whether an answer claims something that is not true of it."""
import os
import re
import sys
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
NO_JOB = frozenset({11})  # nothing was trained, so nothing can be said: "nothing found" claims that a job was looked at
FINE = frozenset({0})  # a healthy job with enough steps
FINE_OR_UNKNOWN = frozenset({0, 11})  # a healthy job whose steps may be too few, or too unlike each other
NOT_FINE = frozenset({11})  # something is wrong with it: "nothing found" is not true
FOUND = 10


@dataclass(frozen=True)
class May:
    """A finding that is true: its kind, the ranks it may name (None: any), and what must be in its evidence or job (patterns)."""
    kind: str
    ranks: tuple | None = None
    evidence: str = ""
    job: str = ""

    def covers(self, job, finding):
        return (self.kind == finding["kind"] and (self.ranks is None or sorted(finding["ranks"]) == list(self.ranks))
                and any(re.search(self.evidence, line) for line in [*finding["evidence"], *([] if self.evidence else [""])])
                and re.search(self.job, job) is not None)


@dataclass(frozen=True)
class Act:
    """What is done `after_s` behind the `count`-th event of this name. Targets: recorder, command, rank N, ranks, STARTED (all that said so)."""
    signal: str
    target: str
    event: str = "half"
    count: int = 1
    after_s: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """`command`: words with {folder} {programs} {small} {static} {python}; `attach`: to the command, or to "rank N", once `ready` programs are
    ready, else the recorder starts it; `beside`: commands that run meanwhile and are not recorded; `keep`: from which to which share of
    the file's bytes is diagnosed; a finding of `findings` makes status 10 right.
    Of files: `make` writes them into a folder, `ask` is the question with {folder}; `says`, `never`: patterns that the answer has, or has not."""
    name: str
    group: str
    why: str
    command: tuple
    env: dict = field(default_factory=dict)
    statuses: frozenset = NO_JOB
    findings: tuple = ()
    attach: str = ""
    ready: int = 1
    options: tuple = ()
    acts: tuple = ()
    beside: tuple = ()
    keep: tuple = (0.0, 1.0)
    needs: tuple = ()
    make: object = None
    ask: tuple = ()
    says: tuple = ()
    never: tuple = ()


def plain(kind):
    return ("{python}", "{programs}/plain.py", kind)


def single(kind):
    return ("{python}", "{programs}/single.py", kind)


def ranks(kind):
    return ("{python}", "{launch}", "{programs}/ranks.py", kind)


def model(name):
    """A job of the fault suite, without a fault."""
    return ("{python}", "{launch}", "{faults}/jobs/" + name + ".py")


def shell(text):
    """Not bash, which counts in SECONDS itself."""
    return ("/bin/sh", "-c", text)


def told(diagnosis):
    """(job, finding) of all jobs of a recording; of a comparison its rows, by what became of them."""
    if diagnosis.get("schema", "").startswith("kansoku.diff/"):
        for row in diagnosis["rows"]:
            if row["significant"] and not row["by_batch"]:
                yield "", {"kind": row["what"], "ranks": [] if row["rank"] is None else [row["rank"]], "function": row["name"], "basis": "test",
                           "share": 0, "confidence": None, "cost_ms_per_step": row["after_ms"] - row["before_ms"],
                           "evidence": [row["name"], row["before_name"], row["after_name"]]}
        return
    for job in [diagnosis, *diagnosis.get("other_jobs", [])]:
        for finding in job["findings"]:
            yield job["job"], finding


def judge_words(scenario, text):
    """What an answer lacks, or says too much."""
    return ([f"nothing of /{pattern}/" for pattern in scenario.says if not re.search(pattern, text)]
            + [f"/{pattern}/ is said" for pattern in scenario.never if re.search(pattern, text)])


def judge(scenario, status, diagnosis, not_judged=""):
    """What is not true in an answer, as sentences; empty: all is true. `not_judged`: a kind that may be true for reasons of the host."""
    findings = list(told(diagnosis)) if diagnosis else []
    judged = [pair for pair in findings if pair[1]["kind"] != not_judged]
    wrong = [sentence(job, finding) for job, finding in judged if not any(may.covers(job, finding) for may in scenario.findings)]
    allowed = scenario.statuses | ({FOUND} if scenario.findings or len(judged) < len(findings) else set())
    if status not in allowed:
        wrong.append(f"status {status}, where only {' or '.join(map(str, sorted(allowed)))} is true")
    if scenario.make is None and (status == FOUND) != bool(findings):
        wrong.append(f"status {status} with {len(findings)} findings")
    return wrong


def sentence(job, finding):
    where = f" in {finding['function']}" if finding["function"] else ""
    verdict = f" ({finding['verdict']})" if finding.get("verdict") else ""
    return (f"{finding['kind']}{verdict} rank {finding['ranks']}{where}, {kit.cost(finding)}, "
            f"{kit.basis(finding)} [{job}]")


def problems(scenarios):
    """What is missing in the scenarios' own truths."""
    names = [scenario.name for scenario in scenarios]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name}: there are {names.count(name)} of this name"
    for scenario in scenarios:
        if not scenario.why.endswith(".") or not scenario.statuses or not (scenario.make or scenario.command):
            yield f"{scenario.name}: why, statuses or command is incomplete"
