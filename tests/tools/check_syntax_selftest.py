#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_syntax.py finds a source that lives on the includes of the file before it in the same compile."""
import json
import os
import subprocess
import unittest

from checker import CheckerTest

SECOND = '#include "m/b.h"\nint second(A a) { return b(a); }\n'  # names A without a.h


class CheckSyntax(CheckerTest):
    SCRIPT = "check_syntax.py"

    def setUp(self):
        super().setUp()
        self.plant("src/m/a.h", "#pragma once\nstruct A { int a; };\n")
        self.plant("src/m/b.h", '#pragma once\n#include "m/a.h"\ninline int b(A a) { return a.a; }\n')
        self.plant("src/m/first.cc", '#include "m/a.h"\nint first(A a) { return a.a; }\n')
        self.plant("src/m/second.cc", SECOND)
        unity = "build/release/src/CMakeFiles/m.dir/Unity/unity_0_cxx.cxx"
        self.plant(unity, "".join(f'#include "{self.root}/src/m/{name}.cc"\n' for name in ("first", "second")))
        self.plant("build/release/compile_commands.json", json.dumps(
            [{"directory": self.root, "file": os.path.join(self.root, unity),
              "command": f"/usr/bin/ccache c++ -std=c++20 -Isrc -MD -MT x -MF x.d -o src/CMakeFiles/m.dir/Unity/unity_0_cxx.cxx.o -c {unity}"}]))
        self.plant(".gitignore", "build/\n")
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x")

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.root, *arguments], check=True, stdout=subprocess.DEVNULL)

    def test_nothing_changed(self):
        self.assertIn("syntax: 0 files", self.expect_clean("--base", "HEAD"))

    def test_a_source_that_lives_on_the_file_before_it(self):
        self.plant("src/m/second.cc", "int second(A a) { return a.a; }\n")  # fine behind first.cc
        self.expect_problems("src/m/second.cc: does not compile by itself", options=["--base", "HEAD"])
        self.plant("src/m/second.cc", SECOND + "int more;\n")
        self.assertIn("syntax: 1 files, 0 unchanged", self.expect_clean("--base", "HEAD"))
        self.assertIn("syntax: 1 files, 1 unchanged", self.expect_clean("--base", "HEAD"))

    def test_a_header_that_no_longer_brings_another(self):
        self.plant("src/m/b.h", "#pragma once\nstruct A;\nint b(A a);\n")
        self.expect_problems("src/m/second.cc: does not compile by itself", options=["--base", "HEAD"])
        self.assertIn("1 left to test-all", self.expect_clean("--base", "HEAD", "--most", "0"))

    def test_comments_are_no_change(self):
        self.plant("src/m/b.h", '#pragma once\n// Adds nothing.\n#include "m/a.h"\ninline int b(A a) { return a.a; }  // of A\n')
        self.assertIn("syntax: 0 files", self.expect_clean("--base", "HEAD"))

    def test_generated_headers_are_built_first(self):
        self.plant("src/m/second.cc", '#include "m/made.inc"\n')
        self.assertIn("second.cc: skipped: m/made.inc is not there", self.expect_clean("--base", "HEAD"))

    def test_nothing_is_configured(self):
        os.unlink(os.path.join(self.root, "build/release/compile_commands.json"))
        self.assertEqual(self.run_checker("--base", "HEAD").returncode, 77)


if __name__ == "__main__":
    unittest.main()
