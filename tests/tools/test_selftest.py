#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/test finds the tests that a word means, in a small tree that ctest really lists; nothing is built."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from checker import ROOT, CheckerTest

TOOLS = ("test", "changed_tests.py", "compile_commands.py", "ctest_suite.py", "source_text.py")
SOURCES = {  # path: (target, text)
    "src/trace/reader.cc": ("trace", '#include "trace/reader.h"\n'),
    "src/trace/reader_test.cc": ("trace_test", '#include "trace/reader.h"\nTEST(Reader, Reads) {}\n'),
    "src/trace/reader_limits_test.cc": ("trace_test", "TEST(ReaderLimits, Hold) {}\n"),
    "src/trace/merge_test.cc": ("trace_test", '#include "trace/reader.h"\nTEST(Merge, Joins) {}\n'),
    "src/trace/reader_fuzz.cc": ("trace_reader_fuzz", '#include "trace/internal/deflate.h"\n'),
    "src/trace/internal/deflate.cc": ("trace", ""),
    "src/trace/import/reader_test.cc": ("trace_import_test", '#include "trace/reader.h"\nTEST(Import, Imports) {}\n'),
    "src/cli/main.cc": ("kansoku", ""),
}
TESTS = """add_test(trace.unit /usr/bin/env run_unit.py trace_test)
add_test(trace_import.unit /usr/bin/env run_unit.py trace_import_test)
add_test(fuzz.trace_reader_fuzz trace_reader_fuzz)
"""


class Words(CheckerTest):
    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.root, "tools"))
        for tool in TOOLS:
            shutil.copy(os.path.join(ROOT, "tools", tool), os.path.join(self.root, "tools"))
        for path in ("src/trace/README.md", "src/trace/import/README.md", "src/cli/README.md", "build/release/build.ninja"):
            self.plant(path, "")
        for path, (_, text) in SOURCES.items():
            self.plant(path, text)
        self.plant("build/release/compile_commands.json", json.dumps([
            {"file": os.path.join(self.root, path), "output": f"CMakeFiles/{target}.dir/x.o", "command": "", "directory": self.root}
            for path, (target, _) in SOURCES.items()]))
        self.plant("build/release/CTestTestfile.cmake", TESTS)

    def found(self, word):
        """{test of ctest: the GoogleTest tests that are asked for, without the patterns of parameters}"""
        done = subprocess.run([sys.executable, "tools/test", "--list", word], cwd=self.root, capture_output=True, text=True, check=False)
        lines = [line.partition(" ") for line in done.stdout.splitlines()] if done.returncode == 0 else []
        return {name: [one for one in patterns.split(":") if one and "/" not in one] for name, _, patterns in lines}

    def test_a_source_means_the_tests_of_its_module_that_include_its_header_or_have_its_name(self):
        expected = {"trace.unit": ["Merge.Joins", "ReaderLimits.Hold", "Reader.Reads"], "fuzz.trace_reader_fuzz": []}
        self.assertEqual(self.found("src/trace/reader.cc"), expected)
        self.plant("src/trace/reader.h", "")
        self.assertEqual(self.found("src/trace/reader.h"), expected)
        self.plant("src/trace/reader_limits.h", "")  # a source of its own now
        self.assertEqual(self.found("src/trace/reader.cc")["trace.unit"], ["Merge.Joins", "Reader.Reads"])

    def test_a_source_without_tests_of_its_own_means_its_module(self):
        self.assertEqual(self.found("src/trace/internal/deflate.cc"), {"fuzz.trace_reader_fuzz": [], "trace.unit": []})
        self.assertEqual(self.found("src/cli/main.cc"), {}, "no unit tests, and no other test runs the program")

    def test_the_other_forms(self):
        fuzzer = {"fuzz.trace_reader_fuzz": []}
        for word, expected in (("trace.unit", {"trace.unit": []}), ("fuzz.*", fuzzer), ("Reader*.*", {"trace.unit": ["Reader*.*"]}),
                               ("trace.Merge*", {"trace.unit": ["Merge*"]}), ("src/trace/reader_test.cc", {"trace.unit": ["Reader.Reads"]}),
                               ("src/trace/reader_fuzz.cc", fuzzer), ("src/trace/import", {"trace_import.unit": []})):
            self.assertEqual(self.found(word), expected, word)


if __name__ == "__main__":
    unittest.main()
