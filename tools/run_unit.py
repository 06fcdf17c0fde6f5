#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the GoogleTest program of a module in one process, and says in a few lines how it went: run_unit.py PROGRAM [OPTION...]

Prints the output of each failed test, the name and reason of each skipped one, and a line of counts. A program that ends in mid-test
fails with that test's name and last words. Options go on to the program (--gtest_filter=...). Exit status: 0 passed, 1 failed, 77
every test was skipped.
"""
import os
import re
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
from ctest_suite import GTEST_BEGIN, GTEST_END  # noqa: E402

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


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    program, *options = sys.argv[1:]
    with subprocess.Popen([program, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: process.kill())
        output = process.communicate()[0].decode(errors="replace")
    counts, open_test = tell(output)
    count = sum(counts.values())
    name = os.path.basename(program)
    if open_test or process.returncode < 0:
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        print(f"{name}: the program ended with {how}{' in ' + open_test if open_test else ''}")
        return 1
    print(f"{name}: {count} tests, {counts['FAILED']} failed, {counts['SKIPPED']} skipped")
    if process.returncode != 0 or count == 0:
        if not counts["FAILED"]:
            print(output[-LAST_WORDS:])
        return 1
    return SKIP_EXIT if counts["SKIPPED"] == count else 0


if __name__ == "__main__":
    sys.exit(main())
