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

    def write_log(self, **allocated):
        with open(self.log, "w", encoding="utf-8") as file:
            for target, took_mb in allocated.items():
                file.write(f"{target}\t1.5\t{took_mb / 2}\t1000\ta.o\n{target}\t1.5\t{took_mb / 2}\t2000000\tb.o\n")

    def test_the_launcher_logs_and_gives_the_status(self):
        source = os.path.join(self.folder, "a.cc")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <vector>\nstatic int a;\n")
        os.makedirs(os.path.join(self.folder, "CMakeFiles/m.dir"))
        done = self.run_tool(self.log, "g++", "-Wall", "-c", source, "-o", "CMakeFiles/m.dir/a.o")
        self.assertEqual(done[0], 0)
        self.assertRegex(done[1], r"unused")  # a warning is shown, the compiler's report is not
        self.assertNotIn("TOTAL", done[1])
        self.assertNotEqual(self.run_tool(self.log, "g++", "-c", source + "x", "-o", "CMakeFiles/n.dir/a.o")[0], 0)
        with open(self.log, encoding="utf-8") as file:
            rows = [line.split("\t") for line in file]
        self.assertEqual([row[0] for row in rows], ["m", "n"])
        self.assertGreater(float(rows[0][1]), 0)
        self.assertTrue(5 < float(rows[0][2]) < 100, rows)  # MB for a header of the library

    def test_a_module_that_grew_is_named(self):
        self.write_log(trace=1000.0, cli=2000.0, small=30.0)
        self.assertEqual(self.run_tool("--write", self.log, self.table)[0], 0)
        status, text = self.run_tool("--check", self.log, self.table)
        self.assertEqual(status, 0, text)
        self.assertIn("1.91 GiB: b.o", text)
        self.write_log(trace=1101.0, cli=2190.0, small=45.0, new=50.0)
        status, text = self.run_tool("--check", self.log, self.table)
        self.assertEqual(status, 1)
        self.assertIn("trace: 1101 MB, the table has 1000", text)
        self.assertIn("new: ", text)
        self.assertNotIn("cli: ", text)
        self.assertNotIn("small: ", text)

    def test_another_compiler_is_refused(self):
        self.write_log(trace=0.0)
        status, text = self.run_tool("--check", self.log, self.table)
        self.assertEqual(status, 1)
        self.assertIn("reported no memory", text)


if __name__ == "__main__":
    unittest.main()
