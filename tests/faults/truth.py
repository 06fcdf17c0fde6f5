# SPDX-License-Identifier: Apache-2.0
"""The fault files: what is true about each fault, and whether a diagnosis says so."""
import ast
import os
import re
import tomllib
from dataclasses import dataclass, field

from injectors import INJECTORS, SETTINGS

HERE = os.path.dirname(os.path.abspath(__file__))
# Environment of each model, and its number of ranks. The transformer is for judging only: nothing is tuned on it.
MODELS = {
    "mlp": ("jobs/mlp.py", {}, 4),
    "transformer": ("jobs/transformer.py", {}, 4),
    "mlp-light": ("jobs/mlp.py", {"LIGHT": "1"}, 8),
    "transformer-light": ("jobs/transformer.py", {"LIGHT": "1"}, 8),
}
EXPECTS = ("slow", "hang", "nothing")
WORDS = ("none", "link", "any")  # in place of a pattern: no function, the link, not judged


@dataclass(frozen=True)
class Fault:
    name: str
    what: str
    expects: str
    ranks: list | str
    function: str
    kinds: list
    doses: list
    models: list
    inject: dict
    world: int = field(default=0)
    baseline: bool = field(default=False)  # compared with a healthy run of the same job

    def problems(self, job_faults):
        """What is wrong or missing, as sentences."""
        wrong = [f"{name} is empty" for name in ("what", "function", "models") if not getattr(self, name)]
        if self.expects not in EXPECTS:
            wrong.append(f"expects {self.expects!r} is none of {' '.join(EXPECTS)}")
        if self.expects != "nothing" and not self.kinds:
            wrong.append("kinds is empty")
        if self.ranks not in ("all", "none") and not (isinstance(self.ranks, list) and self.ranks):
            wrong.append("ranks is neither a list of ranks nor all nor none")
        wrong += [f"model {model} is unknown" for model in self.models if model not in MODELS]
        wrong += [f"dose {dose} is no share of a step" for dose in self.doses if not 0 < dose <= 10]
        try:
            re.compile(self.function)
        except re.error as error:
            wrong.append(f"function: {error}")
        by = self.inject.get("by")
        if by not in INJECTORS:
            wrong.append(f"injector {by!r} does not exist; there are {' '.join(INJECTORS)}")
        wrong += [f"inject.{name} is missing" for name in SETTINGS.get(by, ()) if name not in self.inject]
        if by == "job" and self.inject.get("fault") not in job_faults:
            wrong.append(f"jobs/faults.py knows no fault {self.inject.get('fault')!r}")
        return wrong


def faults_of_jobs():
    """The literal KNOWN of jobs/faults.py, read without importing PyTorch."""
    with open(os.path.join(HERE, "jobs/faults.py"), encoding="utf-8") as file:
        for node in ast.parse(file.read()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "KNOWN":
                return ast.literal_eval(node.value)
    return ()


def load(folder):
    """All faults by name, and what is wrong with their files."""
    faults, problems, job_faults = {}, [], faults_of_jobs()
    for entry in sorted(os.listdir(folder)):
        if not entry.endswith(".toml"):
            continue
        try:
            with open(os.path.join(folder, entry), "rb") as file:
                fault = Fault(**tomllib.load(file))
        except (TypeError, tomllib.TOMLDecodeError) as error:
            problems.append(f"{entry}: {str(error).removeprefix('Fault.__init__() ')}")
            continue
        wrong = fault.problems(job_faults)
        if fault.name + ".toml" != entry:
            wrong.append(f"its name is {fault.name}")
        problems += [f"{entry}: {text}" for text in wrong]
        faults[fault.name] = fault
    return faults, problems


def function_is_right(fault, finding):
    if fault.function == "any":
        return True
    if fault.function in WORDS:
        return not finding["function"]
    return any(re.search(fault.function, name) for name in [finding["function"], *finding.get("stack", [])])


def ranks_of(fault, world):
    """The ranks that a finding is to name."""
    return {"all": list(range(world)), "none": []}[fault.ranks] if isinstance(fault.ranks, str) else fault.ranks


def judge(fault, world, diagnosis):
    """Compares the first finding with the truth; every finding on a job without a culprit is a false alarm."""
    findings = diagnosis["findings"]
    if fault.expects == "nothing":
        wrong = [f for f in findings if f["kind"] not in fault.kinds or 0 < len(f["ranks"]) < world]
        return {"detected": bool(findings), "false_alarms": len(wrong), "right": not wrong}
    if not findings:
        return {"detected": False, "rank": False, "function": False, "kind": False, "right": False}
    top = findings[0]
    said = {"rank": sorted(top["ranks"]) == sorted(ranks_of(fault, world)), "function": function_is_right(fault, top), "kind": top["kind"] in fault.kinds}
    return {"detected": True, **said, "right": all(said.values())}
