#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_headers.py finds headers that do not compile alone, and remembers only what passed."""
import shutil
import subprocess
import unittest

from checker import CheckerTest


@unittest.skipUnless(shutil.which("c++"), "needs a C++ compiler")
class CheckHeaders(CheckerTest):
    SCRIPT = "check_headers.py"

    def setUp(self):
        super().setUp()
        self.plant("src/common/a.h", "#pragma once\nstruct A { int a; };\n")
        self.plant("src/common/b.h", '#pragma once\n#include "common/a.h"\ninline int b(A a) { return a.a; }\n')

    def test_clean_tree_passes_and_is_remembered(self):
        self.assertIn("2 headers, 2 compiled, 0 unchanged", self.expect_clean())
        self.assertIn("2 headers, 0 compiled, 2 unchanged", self.expect_clean())
        self.assertIn("2 headers, 2 compiled, 0 unchanged", self.expect_clean("--no-cache"))
        self.plant("src/common/b.h", '#include "common/a.h"\ninline int b(const A& a) { return a.a; }\n')
        self.assertIn("2 headers, 1 compiled, 1 unchanged", self.expect_clean())
        self.plant("src/common/a.h", "struct A { int a, b; };\n")
        self.assertIn("2 headers, 2 compiled, 0 unchanged", self.expect_clean())

    def test_headers_that_lean_on_others(self):
        self.plant("src/common/b.h", "inline int b(A a) { return a.a; }\n")
        self.plant("src/common/c.h", "inline void c(std::string) {}\n")
        for _ in range(2):  # a failure is not remembered
            self.expect_problems("src/common/b.h: does not compile alone as C++", "src/common/c.h: does not compile alone as C++")
        self.assertIn("1 headers, ", self.expect_clean("src/common/a.h"))

    def test_a_header_that_its_own_source_includes_first_is_no_exception(self):
        self.plant("src/common/b.h", "inline int b(A a) { return a.a; }\n")
        self.plant("src/common/b.cc", '// first of all\n#include "common/b.h"\n#include "common/a.h"\n')
        self.expect_problems("src/common/b.h: does not compile alone as C++")

    def test_a_change_below_is_seen(self):
        self.expect_clean()
        self.plant("src/common/a.h", "#pragma once\nstruct A { int other; };\n")
        self.expect_problems("src/common/b.h: does not compile alone as C++")

    def test_headers_that_a_change_reaches(self):
        self.plant(".gitignore", "build/\n")
        for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"]):
            subprocess.run(["git", "-C", self.root, *words], check=True)
        self.plant("src/common/a.h", self.read("src/common/a.h") + "// Words.\n")
        self.assertIn("headers: 0 headers", self.expect_clean("--changed"))
        self.plant("src/common/a.h", self.read("src/common/a.h") + "struct More {};\n")
        self.plant("src/common/c.h", "#pragma once\n")
        self.assertRegex(self.expect_clean("--changed"), "headers: [23] headers")

    def test_wire_is_c(self):
        self.plant("src/wire/ring.h", "#pragma once\nstruct wire { int a; };\n")
        self.expect_clean()
        self.plant("src/wire/ring.h", "#pragma once\nstruct wire { int a{0}; };\n")
        problems = ["src/wire/ring.h: does not compile alone as C;"]
        if shutil.which("clang"):
            problems.append("src/wire/ring.h: does not compile alone as BPF;")
        self.expect_problems(*problems)

    def test_generated_headers_and_absent_libraries(self):
        self.plant("src/third_party.txt", "absent_library/: common\n")
        self.plant("src/common/c.h", '#include "common/tables.gen.h"\n')
        self.plant("src/common/d.h", "#include <absent_library/x.h>\n")
        output = self.expect_clean()
        self.assertIn('c.h C++: skipped: "common/tables.gen.h" is generated: build first', output)
        self.assertIn("d.h C++: skipped: <absent_library/x.h> is not installed", output)
        self.plant("build/release/gen/common/tables.gen.h", "int table;\n")
        self.assertIn("4 headers, 1 compiled, 2 unchanged, 1 skipped", self.expect_clean())


if __name__ == "__main__":
    unittest.main()
