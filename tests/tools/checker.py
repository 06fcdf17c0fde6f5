# SPDX-License-Identifier: Apache-2.0
"""A small tree to plant violations in, and what a checker says about it."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckerTest(unittest.TestCase):
    """Runs `SCRIPT --root TREE`. `plant` writes files, `found` gives the problems as "path:line" with their texts."""

    SCRIPT = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def plant(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def run_checker(self, *options):
        command = [sys.executable, os.path.join(ROOT, "tools", self.SCRIPT), "--root", self.root, *options]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def expect_clean(self, *options):
        done = self.run_checker(*options)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def expect_problems(self, *expected, options=()):
        """Exactly these problems, in any order; each is a part of its line, best with path and line number."""
        done = self.run_checker(*options)
        self.assertEqual(done.returncode, 1, done.stdout)
        lines = [line for line in done.stdout.splitlines()[:-1] if not line.startswith("  ")]
        for part in expected:
            hits = [line for line in lines if part in line]
            self.assertEqual(len(hits), 1, f"{part!r} in:\n{done.stdout}")
            lines.remove(hits[0])
        self.assertEqual(lines, [], "nothing else")
        return done.stdout
