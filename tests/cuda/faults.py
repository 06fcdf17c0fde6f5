#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""faults.py KANSOKU SOFTGPU_CLANG SAMPLES OUT: a program whose driver fails behaves as without the library.

Each function that a sample calls fails at its first, second and third call, once as the program is and once while every operation is timed:
exit status and output have to be equal. A kernel that crashes the process leaves a recording that can be read. Status 77: not possible here."""
import glob
import os
import subprocess
import sys

sys.dont_write_bytecode = True
from rules import LIBRARY_CALLS  # noqa: E402

SAMPLES = ["streams", "graphs"]
# A graph whose second executable cannot be launched runs by itself: of the driver's failures from the second launch on, the program sees one less.
FIRST_ALONE = {"cuGraphLaunch"}


def run(kansoku, program, settings, trace=None):
    command = [kansoku, "run", "--softgpu", "--", program]
    if trace:
        command = [kansoku, "record", "-q", "--no-bpf", "--cuda", "--force", "-o", trace, "--"] + command
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


def calls_of(kansoku, program, out):
    """Function -> calls, of a run that does not fail."""
    begin = os.path.join(out, "calls")
    for old in glob.glob(begin + ".*"):
        os.remove(old)
    run(kansoku, program, {"KANSOKU_SOFTGPU_COUNTS": begin})
    (path,) = glob.glob(begin + ".*")
    with open(path, encoding="utf-8") as file:
        return {words[1]: int(words[2]) for words in (line.split() for line in file) if words[0] == "call"}


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    kansoku, clang, samples, out = sys.argv[1:]
    os.environ["KANSOKU"] = os.path.abspath(kansoku)  # for the compiler
    if os.geteuid() != 0 or subprocess.run([clang, "--version"], capture_output=True).returncode != 0:
        print("needs root, and clang for the device")
        sys.exit(77)
    os.makedirs(out, exist_ok=True)
    trace, compared, different = os.path.join(out, "faults.pftrace"), 0, 0
    for name in SAMPLES:
        program = os.path.join(out, name)
        subprocess.run([clang, "-std=c++17", "-O2", "-o", program, os.path.join(samples, name + ".cu")], check=True)
        for function, calls in sorted(calls_of(kansoku, program, out).items()):
            most = 0 if function in LIBRARY_CALLS else 1 if function in FIRST_ALONE else 3
            for number in range(1, min(calls, most) + 1):
                fault = {"KANSOKU_SOFTGPU_FAULT": f"{function}:{number}:error=999"}
                plain, watched = run(kansoku, program, fault), run(kansoku, program, fault, trace)
                compared += 1
                if plain != watched:
                    different += 1
                    print(f"{name}: {function} fails at call {number}: {plain} without, {watched} with the library")
    crashed = run(kansoku, os.path.join(out, "streams"), {"KANSOKU_SOFTGPU_FAULT": "kernel=*square*:2:crash"}, trace)
    readable = subprocess.run([kansoku, "diagnose", trace], capture_output=True, text=True)
    if crashed[0] not in (-11, 139) or "cannot" in readable.stderr:
        different += 1
        print(f"a crash: status {crashed[0]}, then {readable.stderr}")
    print(f"{compared} failing calls, {different} different")
    return 1 if different or compared < 20 else 0


sys.exit(main())
