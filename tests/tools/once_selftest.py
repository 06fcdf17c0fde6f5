#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/once.py takes a pass from an earlier run only while nothing that the test stands on has changed; never a failure or a skip."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from checker import ROOT


class Once(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "tree")
        os.makedirs(os.path.join(self.root, "tools"))
        for name in ("once.py", "source_text.py"):
            shutil.copy(os.path.join(ROOT, "tools", name), os.path.join(self.root, "tools"))
        self.plant("src/a.cc", "int a;\n")
        self.plant("docs/a.md", "# a\n")
        self.environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder.name, "cache"))
        self.environment.pop("KANSOKU_ONCE", None)
        self.ran = os.path.join(folder.name, "ran")

    def plant(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def once(self, status, **environment):
        """(exit status, whether the command ran)."""
        command = f"touch {self.ran}; exit $STATUS"
        done = subprocess.run([sys.executable, os.path.join(self.root, "tools/once.py"), "t", "src", "--", "/bin/sh", "-c", command],
                              env=dict(self.environment, STATUS=str(status), **environment), stdout=subprocess.PIPE, check=False)
        ran = os.path.exists(self.ran)
        if ran:
            os.unlink(self.ran)
        return done.returncode, ran

    def test_a_pass_is_taken_until_something_changes(self):
        self.assertEqual(self.once(0), (0, True))
        self.assertEqual(self.once(1), (0, False))
        self.plant("docs/a.md", "# b\n")
        self.assertEqual(self.once(1), (0, False), "the test does not stand on it")
        self.plant("src/a.cc", "int b;\n")
        self.assertEqual(self.once(1), (1, True))

    def test_failures_and_skips_are_not_remembered(self):
        for status in (1, 77):
            self.assertEqual(self.once(status), (status, True))
            self.assertEqual(self.once(status), (status, True))

    def test_it_runs_in_any_case_when_asked(self):
        self.assertEqual(self.once(0), (0, True))
        self.assertEqual(self.once(1, KANSOKU_ONCE="never"), (1, True))


if __name__ == "__main__":
    unittest.main()
