# SPDX-License-Identifier: Apache-2.0
"""How far tests/fresh_root/run.py walks each target of the Makefile and each command of kansoku that README.md and docs/ name, and why no
further. The check at the end of this file says which of them the tables do not know; tests/tools/fresh_root_selftest.py runs it."""
import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/docs"))
import commands as pages  # noqa: E402

# commands: typed in the new root. why: the reason for not walking it to its end; empty if it is.
Walk = collections.namedtuple("Walk", "commands why")


def whole(*commands):
    return Walk(commands, "")


def first(why, *commands):
    return Walk(commands, why)


# The first step of an evaluation is its deps target, which has a row of its own; then its program has to start.
HOURS, MINUTES, DATA = "an evaluation of hours", "an evaluation of many minutes", "wants a recording of another project"
TESTS, GATE = "half an hour more: with --test it is typed", "half an hour or more, for developers"
TARGETS = {
    "help": whole("make help"),
    "build": whole("make build"),
    "softgpu": whole("make softgpu"),
    "demo": whole(),  # run.py types it first
    "install": whole(),  # and this second
    "clean": first("everything would be built again", "make -n clean"),
    "fresh-root": first("this is it", "make -n fresh-root", "tests/fresh_root/run.py --help"),
    "deps-build": whole("make deps-build"),
    "deps-softgpu": whole("make deps-softgpu"),
    "deps-demo": whole("make deps-demo"),
    "deps-faults": whole("make deps-faults"),
    "deps-watch": whole("make deps-watch"),
    "deps-kernels": whole("make deps-kernels"),
    "deps-fresh-root": whole("make deps-fresh-root"),
    "deps-llama": whole("make deps-llama"),
    "deps-store": whole("make deps-store"),
    "deps-otlp": whole("make deps-otlp"),
    "deps-torch": first("5 GB of PyPI", "make -n deps-torch", "tests/torch/environment.py list"),
    "deps-bench": first("some 2 GB: SciPy, OpenCL", "make -n deps-bench"),
    "deps-test": first(TESTS, "make -n deps-test"),
    "deps-check": first(GATE, "make -n deps-check"),
    "deps-fuzz": first(GATE, "make -n deps-fuzz"),
    "build-tests": first(TESTS, "make -n build-tests"),
    "test": first(TESTS, "make -n test", "make -n test FLAKY=1"),
    "test-fast": first(TESTS, "make -n test-fast", "tools/test --help"),
    "test-all": first(HOURS, "make test-all PART=list", "make test-all PART=table", "make -n test-all"),
    "mutants": first(GATE, "make -n mutants", "tests/mutants/run.py --help"),
    "check": first(GATE, "make -n check", "tools/check --help"),
    "asan": first(GATE, "make -n asan"),
    "tsan": first(GATE, "make -n tsan"),
    "nobpf": first(GATE, "make -n nobpf"),
    "fuzz": first(GATE, "make -n fuzz"),
    "bench": first("half an hour, and its packages", "make -n bench BENCH=trace"),
    "eval": first(MINUTES, "make -n eval", "tests/eval/evaluate.py --help"),
    "diff-eval": first(MINUTES, "make -n diff-eval", "tests/diff/evaluate.py --help"),
    "probe-eval": first(MINUTES, "make -n probe-eval", "tests/capture/bodies/evaluate.py --help"),
    "simulate-eval": first(DATA, "make -n simulate-eval"),
    "simulate-experiments": first(MINUTES, "make -n simulate-experiments", "tests/simulate/experiments.py --help"),
    "faults": first(HOURS, "make -n faults FAULT=input_sleep_one", "tests/faults/run.py --help"),
    "false-confidence": first(MINUTES, "make -n false-confidence", "tests/false_confidence/run.py --help"),
    "calibration": first("results of the hours before", "make -n calibration", "tests/calibration/run.py --help"),
    "torch-eval": first(HOURS, "make -n torch-eval", "tests/torch/run.py --help"),
    "equal-work": first(MINUTES, "make -n equal-work", "tests/equal_work/run.py --help"),
    "watch-eval": first(HOURS, "make watch-eval PART=list", "make -n watch-eval PART=all"),
    "watch-soak": first(HOURS, "make -n watch-soak", "tests/watch/soak.py --help"),
    "watch-cost": first(MINUTES, "make -n watch-cost", "tests/watch/cost.py --help"),
    "kernel-check": first("a virtual machine within this one, minutes", "make -n kernel-check", "tests/kernels/run.py --help"),
    "llama": first("half an hour of compiling", "make -n llama", "tests/llama/run.py --help"),
    "demo-cuda": first("half an hour of compiling", "make -n demo-cuda"),
    "cuda-eval": first(HOURS, "make -n cuda-eval"),
    "cuda-causes": first(MINUTES, "make -n cuda-causes", "tests/cuda/causes/evaluate.py --help"),
    "cuda-clock": first(MINUTES, "make -n cuda-clock"),
    "cuda-cost": first(MINUTES, "make -n cuda-cost"),
    "cuda-stuck": first(MINUTES, "make -n cuda-stuck", "tests/cuda/stuck/evaluate.py --help"),
    "gpu-check": first(MINUTES, "make -n gpu-check", "tests/gpu_check/run.sh --help"),
}
JOB, RECORDING, FILES = "wants a job", "wants a recording or a file of yours", "wants files that the experiment makes"
GPU = "wants a program on a GPU, or on the software GPU"
SERVICE = "wants a running service"
# By the words of the command. README's own are typed as they stand there, beside a job; here the rest.
KANSOKU = {
    "demo": whole(),  # make demo
    "doctor": whole("kansoku doctor"),
    "jobs": whole("kansoku jobs"),
    "probes list": whole("kansoku probes list"),
    "gpu devices": whole("kansoku gpu devices"),
    "simulate run": whole("kansoku simulate run examples/simulate/operations.toml -q"),
    "record": first(JOB, "kansoku record --help"),
    "profile": first(JOB, "kansoku profile --help"),
    "diagnose": first(RECORDING, "kansoku diagnose --help"),
    "diff": first(RECORDING, "kansoku diff --help"),
    "export": first(RECORDING, "kansoku export --help"),
    "hang": first(JOB, "kansoku hang --help"),
    "run": first(GPU, "kansoku run --help", "kansoku run --softgpu -- true"),
    "watch": first(SERVICE, "kansoku watch --help"),
    "top": first(SERVICE, "kansoku top --help"),
    "collect": first(SERVICE, "kansoku collect --help"),
    "incidents": first(SERVICE, "kansoku incidents --help"),
    "incidents list": first(SERVICE, "kansoku incidents list --help"),
    "incidents show": first(SERVICE, "kansoku incidents show --help"),
    "incidents false": first(SERVICE, "kansoku incidents false --help"),
    "detect": first(RECORDING, "kansoku detect --help"),
    "detect fit": first(RECORDING, "kansoku detect fit --help"),
    "detect score": first(RECORDING, "kansoku detect score --help"),
    "detect replay": first(RECORDING, "kansoku detect replay --help"),
    "cuda report": first(RECORDING, "kansoku cuda report --help"),
    "cuda stat": first(GPU, "kansoku cuda stat --help"),
    "cuda top": first(GPU, "kansoku cuda top --help"),
    "gpu fatbin": first(GPU, "kansoku gpu fatbin --help"),
    "gpu list": first(GPU, "kansoku gpu list --help"),
    "gpu run": first(GPU, "kansoku gpu run --help"),
    "gpu set": first(GPU, "kansoku gpu set --help"),
    "llm": first("wants a model in inference", "kansoku llm --help"),
    "llm record": first("wants a model in inference", "kansoku llm record --help"),
    "llm report": first(RECORDING, "kansoku llm report --help"),
    "llm top": first("wants a model in inference", "kansoku llm top --help"),
    "simulate fit": first(FILES, "kansoku simulate fit --help"),
    "simulate merge": first(FILES, "kansoku simulate merge --help"),
    "simulate replay": first(FILES, "kansoku simulate replay --help"),
    "simulate sweep": first(FILES, "kansoku simulate sweep --help"),
    "simulate synth": first(FILES, "kansoku simulate synth --help"),
}
WORD = re.compile(r"[a-z][a-z0-9-]*")


def typed():
    """All commands of the tables, each once, in their order; `kansoku` is the program of the build."""
    seen = dict.fromkeys(command for table in (TARGETS, KANSOKU) for walk in table.values() for command in walk.commands)
    return [re.sub(r"^kansoku ", "build/kansoku ", command) for command in seen]


def rules_of(makefile):
    """The targets that have a rule, and the names that are called phony."""
    text = makefile.replace("\\\n", " ")
    phony = {name for names in re.findall(r"^\.PHONY:(.*)$", text, re.MULTILINE) for name in names.split()}
    rules = {name for names in re.findall(r"^([A-Za-z][\w -]*):(?!=)", text, re.MULTILINE) for name in names.split()}
    return rules, phony


def unknown_kansoku(words):
    """Why the table does not know the command, or None."""
    names = []
    for word in words[:2]:
        if not WORD.fullmatch(word):
            break
        names.append(word)
    groups = {name.split()[0] for name in KANSOKU if " " in name}
    if not names or " ".join(names) in KANSOKU:
        return None
    if names[0] in KANSOKU and (len(names) == 1 or names[0] not in groups):
        return None
    if names[0] in groups and len(names) == 1:
        return None
    return " ".join(names)


def problems(root=ROOT):
    """The targets and commands that the tables do not know, or know wrongly: lines."""
    with open(os.path.join(root, "Makefile"), encoding="utf-8") as file:
        rules, phony = rules_of(file.read())
    found = [f"Makefile: {name} is phony and has no rule: make takes it for done" for name in sorted(phony - rules)]
    found += [f"Makefile: {name} is no row of TARGETS: how far is it walked?" for name in sorted(rules - set(TARGETS))]
    found += [f"TARGETS: the Makefile has no {name}" for name in sorted(set(TARGETS) - rules)]
    found += [f"{name}: neither a command nor a reason" for table in (TARGETS, KANSOKU) for name, walk in table.items()
              if not walk.commands and walk.why]
    for page in sorted(page for page in pages.pages(root) if page == "README.md" or page.startswith("docs/")):
        with open(os.path.join(root, page), encoding="utf-8") as file:
            text = file.read()
        for number, command in pages.commands(text):
            words = pages.words_of(command)
            if not words:
                continue
            if words[0] == "make":
                found += [f"{page}:{number}: make {word} is no row of TARGETS" for word in words[1:] if WORD.fullmatch(word) and word not in TARGETS]
            elif words[0] in ("kansoku", "build/kansoku") and unknown_kansoku(words[1:]):
                found.append(f"{page}:{number}: kansoku {unknown_kansoku(words[1:])} is no row of KANSOKU")
    return found
