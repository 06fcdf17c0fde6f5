#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llm_cost.py BUILD [PAIRS]: what each level of `kansoku llm` costs a generation, one thread: on a 24-layer model, and on a toy, whose hits cost as much as
half of its work and more, which is what the price of a hit is checked by.

Starts the driver of tests/llm and runs `bench_llm` on it, level by level, in windows of 0.8 s on and off in random order. Exit status 77 without root or the
build cpu-openmp (tests/llama/run.py build cpu-openmp)."""
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "llm"))
import models  # noqa: E402
from builds import SKIPPED, Unavailable  # noqa: E402


LEVELS = {"mid": ("token", "graph", "operator", "thread"), "toy-F32": ("operator", "thread")}


def compare(build, driver, model, levels, pairs):
    with tempfile.TemporaryDirectory() as folder:
        counter = os.path.join(folder, "tokens")
        words = [driver, "--model", model, "--tokens", "100000000", "--prompt-tokens", "100", "--context", "256", "--counter", counter]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=models.settings("openmp")) as job:
            try:
                while not os.path.exists(counter) or os.path.getsize(counter) < 8:
                    time.sleep(0.05)
                for level in levels:
                    subprocess.run([os.path.join(build, "bench", "bench_llm"), str(job.pid), counter, level, pairs, "800"], check=True)
            finally:
                job.kill()


def main():
    build, pairs = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "6"
    if os.geteuid() != 0:
        print("llm_cost: skipped: needs root")
        return SKIPPED
    for kind, levels in LEVELS.items():
        try:
            driver, model = models.driver("openmp"), models.model(kind)
        except Unavailable as error:
            print(f"llm_cost: skipped: {error}")
            return SKIPPED
        print(f"model {kind}", flush=True)
        compare(build, driver, model, levels, pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
