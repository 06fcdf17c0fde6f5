#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check: its steps, its counts and its exit status, in a small copy of the tools."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from checker import ROOT, SPDX, CheckerTest

TOOLS = ("check", "changed_tests.py", "check_abi.py", "check_bans.py", "check_commits.py", "check_docs.py", "check_flaky.py",
         "check_headers.py", "check_layers.py", "check_names.py", "check_places.py", "check_readers.py", "check_syntax.py", "check_waits.py",
         "compile_commands.py", "ctest_suite.py", "cuda_table.py", "functions.py", "ratchet.py", "source_text.py")


class Check(CheckerTest):
    def setUp(self):
        super().setUp()
        self.plant("src/layers.txt", "common:\n")
        self.plant("src/third_party.txt", "fmt/: *\n")
        self.plant("src/common/README.md", "# common: numbers\n")
        self.plant("src/common/a.h", SPDX + "#pragma once\nint a();\n")
        self.plant("src/common/alone.h", SPDX + "#pragma once\nint alone();\n")
        self.plant("src/common/a.cc", SPDX + '#include "common/a.h"\n\nint a() {\n  return 1;\n}\n')
        for name in TOOLS:
            with open(os.path.join(ROOT, "tools", name), encoding="utf-8") as file:
                self.plant(f"tools/{name}", file.read())
        for name in ("gen_thresholds.py", "gen_modules.py"):  # the sources that they read are not here
            self.plant(f"tools/{name}", "# SPDX-License-Identifier: Apache-2.0\n")

    def check(self, *arguments, path=None):
        environment = dict(os.environ, PATH=path or os.environ["PATH"])
        return subprocess.run([sys.executable, os.path.join(self.root, "tools/check"), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env=environment)

    @staticmethod
    def steps(done):
        """The steps that ran. A word alone does not tell: the output has paths of where this test runs."""
        return re.findall("^== (\\w+): ", done.stdout, re.MULTILINE)

    def test_every_step_passes_or_is_skipped(self):
        done = self.check("layers", "bans", "waits", "ratchet", "tidy")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("== bans: passed in ", done.stdout)
        self.assertIn("; alone: tools/check_bans.py\n", done.stdout)
        self.assertTrue(done.stdout.endswith("check: 4 passed, 0 failed, 1 skipped\n"), done.stdout)  # nothing is built here

    def test_nothing_but_skipped_steps_is_no_success(self):
        for words in (["tidy"], ["tidy", "--all"]):
            done = self.check(*words)
            self.assertEqual(done.returncode, 77, done.stdout)
            self.assertTrue(done.stdout.endswith("check: 0 passed, 0 failed, 1 skipped\n"), done.stdout)

    def test_tidy_of_everything_looks_at_something(self):
        self.plant("build/release/compile_commands.json", json.dumps([{"file": os.path.join(self.root, "src/common/a_test.cc")}]))
        done = self.check("tidy", "--all")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("nothing of the program", done.stdout)

    def test_a_failed_step_does_not_stop_the_others(self):
        self.plant("src/common/b.cc", SPDX + "std::regex r;\n")
        done = self.check("bans", "ratchet")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("   src/common/b.cc:2: std::regex", done.stdout)
        self.assertTrue(done.stdout.endswith("check: 1 passed, 1 failed, 0 skipped\n"), done.stdout)

    def test_a_page_that_is_not_as_the_source_says(self):
        self.assertEqual(self.check("docs").returncode, 0)
        self.plant("tools/gen_modules.py", "import sys\nassert sys.argv[1:] == ['--check']\nprint('stale')\nsys.exit(1)\n")
        done = self.check("docs")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("   stale\n", done.stdout)

    def test_a_missing_tool_is_skipped_with_the_reason(self):
        done = self.check("format", "headers", path="/nowhere")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("clang-format-14 not found", done.stdout)
        self.assertIn("alone.h C++: skipped: c++ not found", done.stdout)

    @unittest.skipUnless(shutil.which("clang-format-14"), "needs clang-format-14")
    def test_format(self):
        shutil.copy(os.path.join(ROOT, ".clang-format"), self.root)
        self.assertEqual(self.check("format").returncode, 0)
        self.plant("src/common/b.cc", SPDX + "int   b;\n")
        done = self.check("format")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("repair: clang-format-14 -i src/common/b.cc\n", done.stdout)

    def test_fast_stops_before_tidy(self):
        done = self.check("--fast", path="/nowhere")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.steps(done), ["format", "layers", "bans", "waits", "ratchet", "names", "abi", "docs", "commits", "headers", "syntax"])

    def test_flaky_runs_when_it_is_named_and_has_its_own_options(self):
        self.assertNotIn("flaky", self.steps(self.check(path="/nowhere")))
        done = self.check("waits", "flaky", "--minutes", "1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("/build/release has no tests (make test)\n== flaky: failed in ", done.stdout)  # nothing is built here
        self.assertIn("; alone: tools/check_flaky.py --minutes 1\n", done.stdout)
        self.plant("build/release/CTestTestfile.cmake", "add_test(good true)\n")
        done = self.check("flaky", "--rounds", "10", "--busy", "0")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("flaky: 1 tests, 20 runs, none failed\n== flaky: passed in ", done.stdout)

    def test_usage(self):
        self.assertEqual(self.check("--help").returncode, 0)
        done = self.check("nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown step nothing; steps are: format layers bans waits ratchet names abi docs commits headers syntax tidy flaky", done.stdout)


if __name__ == "__main__":
    unittest.main()
