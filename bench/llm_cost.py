#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llm_cost.py BUILD [PAIRS]: what each level of `kansoku llm` costs a generation, one thread: on a 24-layer model, and on a toy, whose hits cost as much as
half of its work and more, which is what the price of a hit is checked by.

Starts the driver of tests/llm and runs `bench_llm` on it, level by level, in windows of 0.8 s on and off in random order. Exit status 77 without root or the
build cpu-openmp (tests/llama/run.py build cpu-openmp)."""
import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "llm"))
import models  # noqa: E402
from builds import SKIPPED, Unavailable  # noqa: E402


LEVELS = {"mid": ("token", "graph", "operator", "thread"), "toy-F32": ("operator", "thread"), "toy-Q4_0": ("operator", "thread")}
GOVERNED, GOVERNED_S, SHORT_S = "toy-F32", 99, 25  # at full rate, with the default budget


@contextlib.contextmanager
def generation(driver, model):
    """A running one: its process, and the file whose first 8 bytes count its tokens."""
    with tempfile.TemporaryDirectory() as folder:
        counter = os.path.join(folder, "tokens")
        words = [driver, "--model", model, "--tokens", "100000000", "--prompt-tokens", "100", "--context", "256", "--counter", counter]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=models.settings("openmp")) as job:
            try:
                while not os.path.exists(counter) or os.path.getsize(counter) < 8:
                    time.sleep(0.05)
                yield job.pid, counter
            finally:
                job.kill()


def compare(build, driver, model, levels, pairs):
    with generation(driver, model) as (pid, counter):
        for level in levels:
            subprocess.run([os.path.join(build, "bench", "bench_llm"), str(pid), counter, level, pairs, "800"], check=True)


def governed(build, driver, model):
    """Tokens a second with the governor, and around it without; what it says that it cost."""
    kansoku = os.path.join(build, "kansoku")
    with generation(driver, model) as (pid, counter), tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.pftrace")

        def record(seconds):
            subprocess.run([kansoku, "llm", "record", "-q", "-p", str(pid), "--force", "--duration", f"{seconds}s", "-o", trace], check=True)

        def rate(doing, *arguments):
            with open(counter, "rb") as file:
                before, begin = struct.unpack("<Q", file.read(8))[0], time.monotonic()
                doing(*arguments)
                file.seek(0)
                return (struct.unpack("<Q", file.read(8))[0] - before) / (time.monotonic() - begin)

        with_it = rate(record, GOVERNED_S)
        report = json.loads(subprocess.run([kansoku, "llm", "report", "--json", "--no-peaks", trace], stdout=subprocess.PIPE, check=False).stdout)
        print(f"bench llm_governor seconds={GOVERNED_S} cost={100 * report['cost_share']:.2f}% tokens_per_s={with_it:.0f}", flush=True)
        for _ in range(4):
            without, with_it = rate(time.sleep, SHORT_S), rate(record, SHORT_S)
            print(f"bench llm_governor seconds={SHORT_S} off_tokens_per_s={without:.0f} on_tokens_per_s={with_it:.0f} less={100 - 100 * with_it / without:.1f}%",
                  flush=True)


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
    governed(build, driver, models.model(GOVERNED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
