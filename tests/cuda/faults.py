#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""faults.py KANSOKU SOFTGPU_CLANG SAMPLES OUT: a program whose driver fails behaves as without the library.

Each function that a sample calls fails at its first, second and third call, once as the program is and once while every operation is timed:
exit status and output have to be equal. A kernel that crashes the process leaves a recording that can be read. Status 77: not possible here."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from rules import LIBRARY_CALLS  # noqa: E402

SAMPLES = ["streams", "graphs"]
# A graph whose second executable cannot be launched runs by itself: of the driver's failures from the second launch on, the program sees one less.
FIRST_ALONE = {"cuGraphLaunch"}


def run(kansoku, program, settings, trace=None):
    command = [kansoku, "run", "--softgpu", "--", program]
    if trace:
        command = kit.record_command(kansoku, trace, "-q", "--no-bpf", "--cuda", "--force", of=command)
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


def calls_of(kansoku, program, out):
    """Function -> calls, of a run that does not fail."""
    begin = os.path.join(out, "calls")
    kit.remove_files(begin)
    run(kansoku, program, {"KANSOKU_SOFTGPU_COUNTS": begin})
    return {name: numbers[0] for name, numbers in kit.read_counts(kit.the_file(begin))["call"].items()}


def main(report):
    kansoku, clang, samples, out = kit.words(__doc__, 4)
    kit.need_root()
    kit.need_clang(clang)
    os.makedirs(out, exist_ok=True)
    trace, compared = os.path.join(out, "faults.pftrace"), 0

    def failing(name):
        nonlocal compared
        program, problems = os.path.join(out, name), []
        for function, calls in sorted(calls_of(kansoku, program, out).items()):
            most = 0 if function in LIBRARY_CALLS else 1 if function in FIRST_ALONE else 3
            for number in range(1, min(calls, most) + 1):
                fault = {"KANSOKU_SOFTGPU_FAULT": f"{function}:{number}:error=999"}
                plain, watched = run(kansoku, program, fault), run(kansoku, program, fault, trace)
                compared += 1
                if plain != watched:
                    problems.append(f"{function} fails at call {number}: {plain} without, {watched} with the library")
        return problems

    def crash():
        os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"  # the signal, not a report of it
        crashed = run(kansoku, os.path.join(out, "streams"), {"KANSOKU_SOFTGPU_FAULT": "kernel=*square*:2:crash"}, trace)
        readable = subprocess.run([kansoku, "diagnose", trace], capture_output=True, text=True)
        kit.expect(crashed[0] in (-11, 139) and "cannot" not in readable.stderr, f"status {crashed[0]}, then {readable.stderr}")
    for name in SAMPLES:
        kit.compile_for_device(kansoku, os.path.join(out, name), "-std=c++17", "-O2", os.path.join(samples, name + ".cu"), clang=clang)
        report.part(name, failing, name)
    report.part("a crash", crash)
    report.judge("failing calls", [] if compared >= 20 else [f"only {compared} were compared"])


kit.run(main)
