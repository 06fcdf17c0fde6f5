#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/fuzz_once.sh reports what fuzz targets did; the targets here are scripts that behave as libFuzzer's programs do."""
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = """#!/bin/bash
for a in "$@"; do case $a in -artifact_prefix=*) prefix=${a#*=};; -*) echo "$a";; *) folder=${folder:-$a};; esac; done
"""
GOOD = HEAD + "touch $folder/one $folder/two\necho 'stat::number_of_executed_units: 1234'\n"
CRASH = HEAD + "echo '==1==ERROR: AddressSanitizer: heap-buffer-overflow'\necho x > ${prefix}crash-1\nexit 77\n"
SILENT = HEAD + "exit 1\n"


class FuzzOnce(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.build = folder.name

    def target(self, name, text):
        path = os.path.join(self.build, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def fuzz(self, *arguments):
        return subprocess.run([os.path.join(ROOT, "tools/fuzz_once.sh"), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def test_no_crash(self):
        self.target("a_fuzz", GOOD)
        self.target("a_test", CRASH)
        done = self.fuzz(self.build, "1")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^fuzz a_fuzz runs=1234 seconds=\d+ new=2 crashes=0$")
        self.assertIn("fuzz: 1 targets, 0 with a crash", done.stdout)
        self.assertEqual(sorted(os.listdir(self.build)), ["a_fuzz", "a_test"])

    def test_crashes_are_kept_and_told(self):
        self.target("a_fuzz", GOOD)
        self.target("b_fuzz", CRASH)
        self.target("c_fuzz", SILENT)
        done = self.fuzz(self.build, "1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^fuzz b_fuzz runs=0 seconds=\d+ new=0 crashes=1$")
        self.assertRegex(done.stdout, r"(?m)^fuzz c_fuzz runs=0 seconds=\d+ new=0 crashes=1$")
        self.assertIn("ERROR: AddressSanitizer", done.stdout)
        self.assertIn(f"reproduce: {self.build}/b_fuzz {self.build}/crashes/b_fuzz/crash-1", done.stdout)
        self.assertIn("fuzz: 3 targets, 2 with a crash", done.stdout)
        again = self.fuzz(self.build, "1").stdout
        self.assertIn("fuzz b_fuzz runs=0", again)

    def test_usage(self):
        self.assertEqual(self.fuzz().returncode, 2)
        self.assertEqual(self.fuzz(self.build, "soon").returncode, 2)
        self.assertEqual(self.fuzz(self.build, "0").returncode, 2)
        self.assertEqual(self.fuzz(self.build).returncode, 77)


if __name__ == "__main__":
    unittest.main()
