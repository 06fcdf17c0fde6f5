#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_names.py finds names that two files of a module keep to themselves, and nothing else."""
import unittest

from checker import SPDX, CheckerTest

LAYERS = "common:\ntrace: common\ntrace/import: common trace\n"
ONE = SPDX + """#include <array>
namespace kansoku::trace {
namespace {
constexpr std::array<int, 2> kTable{1, 2};
constexpr int kFirst = 1, kOther = 2;
using Row = std::array<int, 3>;
struct Seen { int count{0}; int inner() { return 1; } };
enum Plain { kLeft, kRight };
enum class Scoped { kUp };
template <class T>
T twice(T value) { return 2 * value; }
int declared(int a, int b = 3);
}  // namespace
static int alone(int value) { return value; }
int open(int value) { const int local = 1; return local + value; }
}  // namespace kansoku::trace
"""


def file_with(body, namespace="kansoku::trace"):
    return SPDX + f"namespace {namespace} {{\n{body}\n}}\n"


def local(body):
    return file_with("namespace {\n" + body + "\n}")


class CheckNames(CheckerTest):
    SCRIPT = "check_names.py"

    def setUp(self):
        super().setUp()
        self.plant("src/layers.txt", LAYERS)
        self.plant("src/trace/one.cc", ONE)

    def test_what_is_not_the_same_is_fine(self):
        self.plant("src/trace/two.cc", local("int thrice(int v) { int twice = 3; return twice * v; }\nenum class Other { kUp };"))
        self.plant("src/trace/three.cc", file_with("struct Reader { void twice(); int inner(); };\nvoid Reader::twice() { struct Seen {}; }"))
        self.expect_clean()

    SAME = local("template <class T>\nT twice(T value) { return value; }\nconstexpr int kFirst = 7;")

    def test_other_modules_tests_and_fuzz_targets_may_say_the_same(self):
        for path in ("src/common/two.cc", "src/trace/import/two.cc", "src/trace/two_test.cc", "src/trace/two_fuzz.cc", "src/trace/one_fuzz.cc"):
            self.plant(path, self.SAME)
        self.expect_clean()

    def test_tests_of_a_module_are_a_group_of_their_own(self):
        self.plant("src/trace/two_test.cc", self.SAME)
        self.plant("src/trace/two_for_test.cc", self.SAME)
        text = self.expect_problems("`twice`", "`kFirst`")
        self.assertIn("two_for_test.cc", text)
        self.assertNotIn("one.cc", text)

    def test_a_type_of_a_named_namespace_is_defined_once(self):
        self.plant("src/trace/a.h", "#pragma once\n" + file_with("struct Options { int a{0}; };\nstruct Told;\nclass Reader { struct Row { int a; }; };"))
        self.plant("src/trace/b.h", "#pragma once\n" + file_with("struct Row { int b{0}; };\nstruct Told { int a{0}; };"))
        self.plant("src/common/a.h", "#pragma once\n" + file_with("struct Options { int b{0}; };", "kansoku"))
        self.expect_clean()
        self.plant("src/trace/c_test.cc", file_with("struct Options { bool b{false}; };"))
        self.expect_problems("`kansoku::trace::Options` is defined by more than one file")

    def test_each_kind_of_name_is_found(self):
        cases = {
            "kTable": "constexpr int kTable[2] = {1, 2};",
            "kFirst": "constexpr double kFirst{2};",
            "kOther": "constexpr double kSame = 1, kOther = 2;",
            "Row": "using Row = int;",
            "Seen": "class Seen {};",
            "kRight": "enum Way : int { kWrong, kRight = 3 };",
            "twice": "double twice(double v, int times) { return v * times; }",
            "declared": "int declared(int v) { return v; }",
            "alone": "struct alone;",
        }
        for name, body in cases.items():
            with self.subTest(name):
                self.plant("src/trace/internal/two.cc", local(body))
                self.expect_problems(f"src/trace: `{name}` is local to more than one file: ")

    def test_static_counts_as_local(self):
        self.plant("src/trace/two.cc", file_with("static int twice(int v) { return v; }"))
        self.expect_problems("`twice` is local to more than one file: one.cc:12, two.cc:3")


if __name__ == "__main__":
    unittest.main()
