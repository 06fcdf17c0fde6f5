#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/compile_cost.py logs a compile as its launcher, and finds the module that grew."""
import os
import subprocess
import sys
import tempfile
import unittest

from checker import ROOT

TOOL = os.path.join(ROOT, "tools/compile_cost.py")


class CompileCost(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.log, self.table = os.path.join(self.folder, "log"), os.path.join(self.folder, "table.tsv")

    def run_tool(self, *words):
        done = subprocess.run([sys.executable, TOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=self.folder)
        return done.returncode, done.stdout

    def write_log(self, **seconds):
        with open(self.log, "w", encoding="utf-8") as file:
            for target, used in seconds.items():
                file.write(f"{target}\t{used / 2}\t1000\ta.o\n{target}\t{used / 2}\t2000000\tb.o\n")

    def test_the_launcher_logs_and_gives_the_status(self):
        source = os.path.join(self.folder, "a.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int a;\n")
        os.makedirs(os.path.join(self.folder, "CMakeFiles/m.dir"))
        self.assertEqual(self.run_tool(self.log, "cc", "-c", source, "-o", "CMakeFiles/m.dir/a.o")[0], 0)
        self.assertNotEqual(self.run_tool(self.log, "cc", "-c", source + "x", "-o", "CMakeFiles/n.dir/a.o")[0], 0)
        with open(self.log, encoding="utf-8") as file:
            rows = [line.split("\t") for line in file]
        self.assertEqual([row[0] for row in rows], ["m", "n"])
        self.assertGreater(float(rows[0][1]), 0)

    def test_a_module_that_grew_is_named(self):
        self.write_log(trace=100.0, cli=200.0)
        self.assertEqual(self.run_tool("--write", self.log, self.table, "1")[0], 0)
        status, text = self.run_tool("--check", self.log, self.table, "1")
        self.assertEqual(status, 0, text)
        self.assertIn("1.91 GiB: b.o", text)
        self.assertEqual(self.run_tool("--check", self.log, self.table, "1.2")[0], 0)  # a slower machine
        self.assertRegex(self.run_tool("--check", self.log, self.table)[1], r" a unit is \d+\.\d+ s")
        self.write_log(trace=200.0, cli=200.0, new=50.0)
        status, text = self.run_tool("--check", self.log, self.table, "1")
        self.assertEqual(status, 1)
        self.assertIn("trace: ", text)
        self.assertIn("new: ", text)
        self.assertNotIn("cli: ", text)


if __name__ == "__main__":
    unittest.main()
