#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that `make test` leaves out: run.py next | list | table | PART... [--minutes M] [--again]

next    runs parts that have no result at this commit, and begins none after half an hour: call it until it says that all is done
list    the parts, with what each runs and how long it takes on two cores
table   what ran when: the last result of each part, at whichever commit
PART    runs that part

A part passes if its command ends with 0; its output is in build/all/PART.log, its result in build/all/results.jsonl.
"""
import argparse
import collections
import datetime
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

FOLDER = os.path.join(kit.ROOT, "build/all")
LAST_LINES = 15
Step = collections.namedtuple("Step", "minutes command reason")


def build_and_test(preset, labels="-L '^unit$'"):
    return f"cmake --preset {preset} && cmake --build --preset {preset} -j $(nproc) && ctest --test-dir build/{preset} -j $(nproc) {labels} --output-on-failure --no-tests=error"


COLD = "build/compile-cost"
# name: minutes on two cores, command, and why it is no part of `make test`.
STEPS = {
    "compile-cost": Step(15, f"rm -rf {COLD} build/all/compile.log && CCACHE_DISABLE=1 cmake --preset release -B {COLD} "
                             "-DCMAKE_CXX_COMPILER_LAUNCHER=\"$PWD/tools/compile_cost.py;$PWD/build/all/compile.log\" && "
                             f"CCACHE_DISABLE=1 cmake --build {COLD} -j $(nproc) && rm -rf {COLD} && "
                             "tools/compile_cost.py --check build/all/compile.log tests/all/compile_cost.tsv",
                         "a cold build of its own"),
    "files": Step(25, build_and_test("files"), "the program once more, file by file"),
    "clang": Step(20, build_and_test("clang"), "the program once more, by the second compiler"),
    "headers": Step(5, "cmake --preset release && cmake --build --preset release -j $(nproc) --target softcuda && tools/check_headers.py",
                    "make test looks at headers that a change of code reaches"),
    "tidy": Step(20, "cmake --preset release && cmake --build --preset release -j $(nproc) && tools/check tidy --all -j $(nproc)",
                 "the whole program; `make check` looks at files that changed"),
    "asan": Step(35, "make asan", "the program once more, with address and undefined-behaviour sanitizers"),
    "tsan": Step(35, "make tsan", "the program once more, with the thread sanitizer"),
    "nobpf": Step(20, "make nobpf", "the program once more, without libbpf"),
    "fuzz": Step(30, "make fuzz FUZZ_SECONDS=20", "the program once more, by libFuzzer; each target for 20 s"),
    "llama-tests": Step(25, "KANSOKU_ONCE=never ctest --test-dir build/release -R '^llama\\.' --output-on-failure --no-tests=error",
                        "make test takes them from an earlier run where nothing that they stand on has changed"),
    "llm-quick": Step(25, "make deps-llama && tests/llama/run.py build cpu-openmp && tests/llm/exact.py quick", "needs builds of llama.cpp for the CPU"),
    "flaky": Step(20, "tools/check flaky", "every test that may share the machine, 20 times under load"),
    "loaded": Step(25, "cmake --preset release && cmake --build --preset release -j $(nproc) && tests/all/loaded.sh build/release",
                   "all of make test's tests beside two busy loops and a copy loop"),
    "mutants": Step(90, "make mutants MUTANTS='--minutes 90'", "builds the program once more, with mutants"),
    "llama-operators": Step(240, "make cuda-eval", "every operator of llama.cpp, hours"),
    "eval": Step(45, "make eval", "planted faults and clean runs"),
    "diff": Step(20, "make diff-eval", "planted changes"),
    "causes": Step(30, "make cuda-causes", "planted causes on the software GPU"),
    "stuck": Step(30, "make cuda-stuck", "what never ends on a GPU"),
    "clock": Step(15, "make cuda-clock", "a skewed event clock over ten minutes"),
    "probes": Step(30, "make probe-eval", "20,000 generated functions"),
    "arrivals": Step(10, "make simulate-eval", "arrival models against recorded queues"),
    "experiments": Step(10, "make simulate-experiments", "E1 to E9 at full size"),
    "false-confidence": Step(30, "make false-confidence", "healthy, foreign and broken off programs"),
    "equal-work": Step(120, "make equal-work EQUAL='--minutes 120'", "real jobs whose ranks do equal work, or work that moves, hours"),
    "faults": Step(240, "make faults", "many kinds of faults in real jobs, hours"),
    "watch": Step(240, "make watch-eval PART=all", "always-on watching under planted faults, hours"),
    "kernel": Step(20, "make kernel-check", "Debian's kernel in qemu"),
    "fresh-root": Step(40, "make fresh-root", "a new Debian root"),
}


def run_step(name):
    step = STEPS[name]
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, name + ".log")
    begin, when = time.monotonic(), datetime.datetime.now().astimezone().isoformat(timespec="minutes")
    with open(path, "w", encoding="utf-8") as log:
        job = kit.Job(["/bin/bash", "-o", "pipefail", "-c", step.command], "SIGTERM", cwd=kit.ROOT, stdin=subprocess.DEVNULL, stdout=log,
                      stderr=subprocess.STDOUT)
        with job:
            status = job.wait()
    if status == 77:
        raise kit.Impossible(last_line(path))
    return {"status": status, "seconds": round(time.monotonic() - begin), "when": when, "last": last_line(path)}


def last_line(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file.read().splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def shown(result):
    return f"{'passed' if result['status'] == 0 else 'FAILED'} in {result['seconds']} s: {result['last']}"


def print_list():
    print("| part | minutes | why not in make test |\n|---|---|---|")
    for name, step in STEPS.items():
        print(f"| {name} | {step.minutes} | {step.reason} |")


def print_table(parts):
    print("| part | when | commit | result | seconds |\n|---|---|---|---|---|")
    for name in STEPS:
        last = next((one for one in reversed(parts.all) if one["key"] == [name]), None)
        if last is None:
            print(f"| {name} | never | | | |")
        elif "not_run" in last:
            print(f"| {name} | | {last['commit']} | not run: {last['not_run']} | |")
        else:
            print(f"| {name} | {last['when']} | {last['commit']} | {'passed' if last['status'] == 0 else 'FAILED'} | {last['seconds']} |")


def main(report):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="next|list|table|PART", choices=["next", "list", "table", *STEPS])
    parser.add_argument("--minutes", type=float, default=30, help="next: begin no part after so many [%(default)g]")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    options = parser.parse_args()
    parts = kit.Parts(FOLDER, path=os.path.join(FOLDER, "results.jsonl"))
    if options.what in (["list"], ["table"]):
        print_list() if options.what == ["list"] else print_table(parts)
        return 0
    wanted = list(STEPS) if "next" in options.what else options.what
    plan = [kit.Part((name,), name, lambda name=name: run_step(name)) for name in wanted]
    minutes = options.minutes if "next" in options.what else None
    done = kit.run_until_stopped(lambda: parts.run(plan, report, shown, minutes, options.again))
    for name in wanted:
        result = parts.result((name,))
        if result and result["status"] != 0:
            report.judge(name, [f"status {result['status']}; build/all/{name}.log: {result['last']}"])
    if done and all(parts.result((name,)) for name in wanted):
        print("all done")
    return None


if __name__ == "__main__":
    kit.run(main)
