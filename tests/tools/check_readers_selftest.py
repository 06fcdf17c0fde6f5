#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_readers.py finds importers that are not listed, and tests that do not exist."""
import unittest

from checker import CheckerTest

HEAD = "# Readers\n\n| reader | reads | versions | unknown version | missing field | damaged item |\n|---|---|---|---|---|---|\n"


class CheckReaders(CheckerTest):
    SCRIPT = "check_readers.py"

    def setUp(self):
        super().setUp()
        self.plant("src/trace/import/a.h", "int a;\n")
        self.plant("src/trace/import/a_for_test.h", "int a;\n")
        self.plant("src/trace/import/a_test.cc", "TEST(A, Refuses) {}\nTEST_F(A, Counts) {\n}\n")

    def table(self, *rows):
        self.plant("docs/formats/readers.md", HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows))

    def test_a_reader_with_its_tests(self):
        self.table(("`src/trace/import/a.h`", "x", "1", "`A.Refuses`", "- it has none", "`A.Counts`, `A.Refuses`"))
        self.expect_clean()

    def test_what_is_wrong(self):
        self.table(("`src/trace/import/a.h`", "x", "1", "`A.Gone`", "", "`A.Counts`"), ("`src/b.h`", "x", "1", "`A.Counts`", "- none", "-"),
                   ("`src/c.h`", "x"))
        self.plant("src/trace/import/d.h", "int d;\n")
        self.expect_problems("readers.md:5: no test A.Gone", "readers.md:5: `` names no test", "readers.md:6: no file src/b.h",
                             "readers.md:6: `-` names no test", "readers.md:7: 2 cells, not 6", "src/trace/import/d.h is not listed")

    def test_no_page(self):
        self.expect_problems("docs/formats/readers.md: no such page")


if __name__ == "__main__":
    unittest.main()
