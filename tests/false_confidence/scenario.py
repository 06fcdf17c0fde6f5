# SPDX-License-Identifier: Apache-2.0
"""What a scenario is, and whether an answer claims something that is not true of it."""
import os
import re
import sys
from collections.abc import Callable
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
    """A finding that is true: its kind (a pattern, as a whole), the ranks it may name (None: any), and what must be in its evidence, its job
    or its detail (patterns; a hang's detail is its verdict)."""
    kind: str
    ranks: tuple | None = None
    evidence: str = ""
    job: str = ""
    detail: str = ""

    def covers(self, job, finding):
        return (re.fullmatch(self.kind, finding["kind"]) is not None and (self.ranks is None or sorted(finding["ranks"]) == list(self.ranks))
                and any(re.search(self.evidence, line) for line in [*finding["evidence"], *([] if self.evidence else [""])])
                and re.search(self.job, job) is not None and re.search(self.detail, detail(finding)) is not None)


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

    Of files: `make` writes them into a folder, the same ones each time; `ask`: what kansoku is asked, words with {folder}; `says`: patterns
    that must be in what it prints, `never`: patterns that must not."""
    name: str
    group: str
    why: str
    command: tuple = ()
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
    make: Callable | None = None
    ask: tuple = ("diagnose", "--json", "{folder}")
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


def told(answer):
    """(job, finding) of all jobs of a diagnosis, of a report of devices, of a comparison: there each row that changed by itself is one."""
    schema = answer.get("schema", "")
    if schema.startswith("kansoku.diff/"):
        for row in answer["rows"]:
            if row["significant"] and not row["by_batch"]:
                yield "", {"kind": row["what"], "ranks": [] if row["rank"] is None else [row["rank"]],
                           "evidence": [row["name"], row["before_name"], row["after_name"], *row["evidence"]]}
    elif schema.startswith("kansoku.cuda_report/"):
        for finding in answer["findings"]:
            yield "", {key: finding[key] for key in ("kind", "detail", "ranks", "evidence")}
    else:
        for job in [answer, *answer.get("other_jobs", [])]:
            for finding in job["findings"]:
                yield job["job"], finding


def contradictions(answer):
    """Rows of a comparison that are called slower or faster by an interval that holds both."""
    for row in answer.get("rows", []) if answer.get("schema", "").startswith("kansoku.diff/") else ():
        time = row["call_ms"]
        if row["significant"] and row["what"] in ("slower", "faster") and time["low"] is not None and time["low"] <= 1.0 <= time["high"]:
            yield f"{row['name']} is {row['what']}, by x{time['ratio']:.3f} within {time['low']:.3f} .. {time['high']:.3f}"


def detail(finding):
    return finding.get("detail") or finding.get("verdict") or ""


def judge(scenario, status, answer, not_judged="", printed=""):
    """What is not true in an answer, as sentences; empty: all is true. `not_judged`: a kind that may be true for reasons of the host;
    `printed`: both outputs."""
    findings = list(told(answer)) if answer else []
    judged = [pair for pair in findings if pair[1]["kind"] != not_judged]
    wrong = [sentence(job, finding) for job, finding in judged if not any(may.covers(job, finding) for may in scenario.findings)]
    allowed = scenario.statuses | ({FOUND} if scenario.findings or len(judged) < len(findings) else set())
    if status not in allowed:
        wrong.append(f"status {status}, where only {' or '.join(map(str, sorted(allowed)))} is true")
    # What is told of all rows of a comparison together, or of the step, is no row, and makes a change all the same.
    together = bool(answer) and answer.get("verdict") == "changed" and (bool(answer["summary"]) or answer["step_ms"]["significant"])
    if (status == FOUND) != (bool(findings) or together):
        wrong.append(f"status {status} with {len(findings)} findings")
    if scenario.make and status in FINE | NOT_FINE | {FOUND} and answer is None:
        wrong.append(f"status {status} without an answer")
    wrong += contradictions(answer or {})
    wrong += [f"it does not say `{pattern}`" for pattern in scenario.says if not re.search(pattern, printed)]
    return wrong + [f"it says `{found.group()}`" for pattern in scenario.never if (found := re.search(pattern, printed))]


def sentence(job, finding):
    where = f" in {finding['function']}" if finding.get("function") else ""
    how = f" ({detail(finding)})" if detail(finding) else ""
    if "confidence" not in finding:
        return f"{finding['kind']}{how} rank {finding['ranks']}: {'; '.join(filter(None, finding['evidence']))[:300]}"
    return f"{finding['kind']}{how} rank {finding['ranks']}{where}, {kit.cost(finding)}, {kit.basis(finding)} [{job}]"


def problems(scenarios):
    """What is missing in the scenarios' own truths."""
    names = [scenario.name for scenario in scenarios]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name}: there are {names.count(name)} of this name"
    for scenario in scenarios:
        if not scenario.why.endswith(".") or not scenario.statuses or bool(scenario.command) == bool(scenario.make):
            yield f"{scenario.name}: why, statuses or command is incomplete"
        for pattern in (*scenario.says, *scenario.never, *(one for may in scenario.findings for one in (may.kind, may.evidence, may.detail))):
            try:
                re.compile(pattern)
            except re.error as error:
                yield f"{scenario.name}: {pattern}: {error}"
