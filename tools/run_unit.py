#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the GoogleTest program of a module, and says in a few lines how it went: run_unit.py PROGRAM [OPTION...]

Prints the output of each failed test, the name and reason of each skipped one, and a line of counts. A program that ends in mid-test
fails with that test's name and last words. Options go on to the program (--gtest_filter=...). With --processes=N, so many share the
tests: for programs that mostly wait for the kernel. Exit status: 0 passed, 1 failed, 77 every test was skipped.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from ctest_suite import GTEST_BEGIN, GTEST_END  # noqa: E402

PROCESSES = "--processes="
SKIP_EXIT = 77
LAST_WORDS = 8000  # characters of a test in which the program ended


def tell_skipped(name, text):
    """The reason that GTEST_SKIP() gives, on one line."""
    words = re.sub(r"^\S+:\d+: Skipped$", "", text, flags=re.MULTILINE).split()
    print(f"skipped: {name}: {' '.join(words)}")


def tell(output):
    """Prints failures and skips; (tests that ended, failed, skipped, name of the one that did not end)."""
    ends = {match.group(2): match for match in GTEST_END.finditer(output)}
    counts = {"OK": 0, "FAILED": 0, "SKIPPED": 0}
    for begin in GTEST_BEGIN.finditer(output):
        end = ends.get(begin.group(1))
        if end is None:
            print(output[begin.start():][-LAST_WORDS:])
            return counts, begin.group(1)
        state = end.group(1).strip()
        counts[state] += 1
        if state == "FAILED":
            print(output[begin.start():end.end()])
        elif state == "SKIPPED":
            tell_skipped(begin.group(1), output[begin.end():end.start()])
    return counts, None


def run(program, options, processes):
    """[(exit status, output)] of each process, after all of them have ended."""
    running = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: [process.kill() for process, _ in running])
    for index in range(processes):
        shard = {"GTEST_TOTAL_SHARDS": str(processes), "GTEST_SHARD_INDEX": str(index)} if processes > 1 else {}
        output = tempfile.TemporaryFile()
        running.append((subprocess.Popen([program, *options], env={**os.environ, **shard}, stdout=output, stderr=subprocess.STDOUT),
                        output))
    ended = []
    for process, output in running:
        process.wait()
        output.seek(0)
        ended.append((process.returncode, output.read().decode(errors="replace")))
    return ended


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    program, *arguments = sys.argv[1:]
    options = [argument for argument in arguments if not argument.startswith(PROCESSES)]
    processes = max([1] + [int(argument[len(PROCESSES):]) for argument in arguments if argument.startswith(PROCESSES)])
    name = os.path.basename(program)
    counts = {"OK": 0, "FAILED": 0, "SKIPPED": 0}
    failed = False
    for status, output in run(program, options, processes):
        of_process, open_test = tell(output)
        for state, count in of_process.items():
            counts[state] += count
        if open_test or status < 0:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            print(f"{name}: the program ended with {how}{' in ' + open_test if open_test else ''}")
            failed = True
        elif status != 0:
            if not of_process["FAILED"]:
                print(output[-LAST_WORDS:])
            failed = True
    count = sum(counts.values())
    if count == 0 and not failed:
        print(f"{name}: no test ran")
    print(f"{name}: {count} tests, {counts['FAILED']} failed, {counts['SKIPPED']} skipped")
    if failed or count == 0:
        return 1
    return SKIP_EXIT if counts["SKIPPED"] == count else 0


if __name__ == "__main__":
    sys.exit(main())
