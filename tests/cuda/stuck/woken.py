#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""woken.py [--runs N] [--only FORM...] [--kansoku FILE]: `kansoku hang` on programs (woken.cu) whose library was asleep when a long kernel began.

Each run is a form of the program twice, with a kernel that never ends and with one that ends. `hang` is asked while the library sleeps, and again
and again while `cuda top` keeps it awake:
  stuck   never "nothing_stuck"
  slow    never "stuck_kernel"; "unknown" ends, as "nothing_stuck", once the kernel and what the program does next are over
One line a run; exit status 1 if an answer was wrong or missing. Needs root and clang 19."""
import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import kit  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
FORMS = [(stream, wait, others, worker) for worker in (0, 1) for others in (0, 3) for stream in ("default", "blocking", "nonblocking")
         for wait in ("stream", "device", "copy")] + [(stream, "none", 3, worker) for worker in (0, 1) for stream in ("default", "blocking", "nonblocking")]
LOOKS = 3  # after a wake


def hang(kansoku, pid):
    done = subprocess.run([kansoku, "hang", "--json", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False)
    process = json.loads(done.stdout)["processes"][0]
    return process["verdict"], process["why"]


def is_awake(why):
    return "asleep" not in why


def run(kansoku, program, form, is_slow):
    """The answers, and what is wrong with them."""
    answers, wrong = [], []

    def look():
        verdict, why = hang(kansoku, target.pid)
        answers.append(verdict)
        if not over and verdict == ("nothing_stuck" if not is_slow else "stuck_kernel"):
            wrong.append(f"{verdict} ({why})")
        if over and verdict == "stuck_kernel":
            wrong.append(f"{verdict} after its end ({why})")
        return verdict, why

    over = False
    words = [kansoku, "run", "--softgpu", "--memory", "256M", "--cuda", "--", program, *map(str, form)]
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                      env={**os.environ, "KANSOKU_SOFTGPU_WORKERS": "2"}))
        stack.callback(target.kill)
        if target.stdout.readline() != "running\n":
            return answers, ["the program did not run"]
        look()
        top = stack.enter_context(subprocess.Popen([kansoku, "cuda", "top", "-p", str(target.pid), "--json"], stdout=subprocess.DEVNULL))
        stack.callback(top.terminate)
        end = time.monotonic() + kit.PATIENCE_S
        while not is_awake(look()[1]) and time.monotonic() < end:
            pass
        for _ in range(LOOKS):
            look()
        if is_slow:
            target.stdin.write("end\n")
            target.stdin.flush()
            if target.stdout.readline() != "over\n":
                return answers, wrong + ["the program did not go on"]
            over = True
            verdict, why = look()
            end = time.monotonic() + kit.PATIENCE_S
            while verdict != "nothing_stuck" and time.monotonic() < end:
                verdict, why = look()
            if verdict != "nothing_stuck":
                wrong.append(f"{verdict} does not end ({why})")
    return answers, wrong


def main(report):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], metavar="FORM", help="as the lines name it: default-copy-0-1")
    parser.add_argument("--kansoku", default=kit.default_kansoku())
    options = parser.parse_args()
    kit.need_root()
    kit.need_clang()
    forms = [form for form in FORMS if "-".join(map(str, form)) in options.only]
    forms = forms or random.Random(options.seed).sample(FORMS, min(options.runs, len(FORMS)))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        program = kit.compile_for_device(options.kansoku, os.path.join(folder, "woken"), "-std=c++17", "-O2", os.path.join(HERE, "woken.cu"))
        for form in forms:
            for is_slow in (False, True):
                answers, wrong = run(options.kansoku, program, form, is_slow)
                failed += bool(wrong)
                print(f"woken {'slow' if is_slow else 'stuck'} {' '.join(map(str, form))}: {'WRONG ' + '; '.join(wrong[:2]) if wrong else 'right'} "
                      f"({', '.join(dict.fromkeys(answers))}; {len(answers)} answers)", flush=True)
    print(f"woken: {2 * len(forms)} runs, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    kit.run(main)
