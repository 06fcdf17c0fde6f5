#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/run_unit.py tells how a GoogleTest program ended: passed, failed, skipped, or in the midst of a test."""
import os
import subprocess
import sys
import tempfile
import unittest

from checker import ROOT


class RunUnit(unittest.TestCase):
    def run_program(self, body, *options):
        with tempfile.TemporaryDirectory(prefix="kansoku-selftest-") as folder:
            program = os.path.join(folder, "m_test")
            with open(program, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/bash\n{body}\n")
            os.chmod(program, 0o755)
            done = subprocess.run([sys.executable, os.path.join(ROOT, "tools/run_unit.py"), program, *options], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    @staticmethod
    def one(name, state="       OK ", text=""):
        return f"echo '[ RUN      ] {name}'; echo '{text}'; echo '[{state}] {name} (0 ms)'; "

    SKIPPED = "  SKIPPED "

    def test_passed(self):
        self.assertEqual(self.run_program(self.one("A.One") + self.one("A.Two", text="words")), (0, "m_test: 2 tests, 0 failed, 0 skipped\n"))

    def test_failed(self):
        status, text = self.run_program(self.one("A.One") + self.one("A.Two", "  FAILED  ", "bad luck") + "exit 1")
        self.assertEqual(status, 1)
        self.assertIn("bad luck", text)
        self.assertIn("2 tests, 1 failed", text)

    def test_skipped(self):
        skipped = self.one("A.Two", self.SKIPPED, "needs a GPU")
        status, text = self.run_program(self.one("A.One") + skipped)
        self.assertEqual(status, 0)
        self.assertIn("skipped: A.Two: needs a GPU\n", text)
        self.assertEqual(self.run_program(skipped)[0], 77)
        self.assertEqual(self.run_program(skipped + self.one("A.One", "  FAILED  ") + "exit 1")[0], 1)

    def test_ends_in_a_test(self):
        status, text = self.run_program(self.one("A.One") + "echo '[ RUN      ] A.Two'; echo last words; kill -ABRT $$")
        self.assertEqual(status, 1)
        self.assertIn("last words", text)
        self.assertIn("signal 6 in A.Two", text)
        self.assertEqual(self.run_program("echo '[ RUN      ] A.Two'; exit 0")[0], 1)

    def test_processes_share_the_tests(self):
        each = self.one("A.$GTEST_SHARD_INDEX") + "test $# = 0 || exit 1; "
        self.assertEqual(self.run_program(each, "--processes=3"), (0, "m_test: 3 tests, 0 failed, 0 skipped\n"))
        status, text = self.run_program(each + "test $GTEST_SHARD_INDEX != 1 || kill -ABRT $$", "--processes=3")
        self.assertEqual((status, text.splitlines()[-1]), (1, "m_test: 3 tests, 0 failed, 0 skipped"))
        self.assertIn("signal 6", text)

    def test_runs_nothing_or_fails_outside_of_tests(self):
        self.assertEqual(self.run_program("exit 0")[0], 1)
        self.assertEqual(self.run_program(self.one("A.One") + "echo leak; exit 1")[0], 1)


if __name__ == "__main__":
    unittest.main()
