#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/ratchet.py measures what it should and lets nothing grow."""
import json
import os
import sys
import unittest

from checker import ROOT, CheckerTest

sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
import functions  # noqa: E402

SHAPES = r"""
#include <vector>
#define OPEN(x) { x
namespace a::b {
namespace {
enum class Kind { kOne, kTwo };
struct Point { int x{0}, y{1}; int sum() const { return x + y; } };
template <class T, int N = 3>
class [[nodiscard]] Box final : public Base<int(int)> {
 public:
  Box(int a, std::vector<int> b = {1, 2}) : Base<int(int)>{a}, a_(a), b_{std::move(b)}, c_{} {
    f(a);
  }
  ~Box() noexcept(false) = default;
  bool operator<(const Box& other) const {
    return a_ < other.a_;
  }
  template <class U> requires(sizeof(U) > 1)
  auto get(U u) const -> Result<std::vector<U>> {
    return {u};
  }
  struct Inner { void deep() { } };
 private:
  std::vector<int> b_{1, 2, 3};
  std::function<void(int)> callback_{[](int) { return; }};
  int a_ = 0, c_{4};
};
constexpr std::array<Row, 2> kRows{{{Op::kAdd, [](Lane l) { return l; }}, {Op::kSub, nullptr}}};
const auto kLambda = [](int a) {
  return a;
};
static const struct point kOrigin = {.x = 0, .y = 0};
static struct point* find(struct point* p) {
  return p;
}
}  // namespace
extern "C" {
int entry(void) { return '{' + sizeof("}{"); }
}
}  // namespace a::b
TEST(Suite, Name) {
  EXPECT_EQ(1, [&] { return 1; }());
}
SEC("uprobe/x{") int BPF_PROG(on_entry, struct task* t) {
  return 0;
}
#ifdef __x86_64__
int twice(int a) {
  return a;
#else
int twice(long a) {
  // { not counted
  return a;
#endif
}
void guarded() REQUIRES(mu_) try { go(); } catch (const E&) { }
__attribute__((noinline)) void marked(void (*hook)(int)) {
}
A::A(B b)
    : b_(b),
      c_{3} {
}
"""
EXPECTED = [
    ("Point::sum", 1), ("Box::Box", 3), ("Box::operator_", 3), ("Box::get", 3), ("Box::Inner::deep", 1), ("kLambda", 3),
    ("find", 3), ("entry", 1), ("TEST(Suite, Name)", 3), ("BPF_PROG(on_entry, struct task* t)", 3), ("twice", 5),
    ("guarded", 1), ("marked", 2), ("A::A", 2),
]


def function_text(name, lines):
    return f"void {name}() {{\n" + "  step();\n" * (lines - 2) + "}\n"


class Functions(unittest.TestCase):
    def test_shapes_of_cpp(self):
        found = [(function.name, function.lines) for function in functions.functions_of("a.cc", SHAPES)]
        self.assertEqual(found, EXPECTED)

    def test_first_line(self):
        found = functions.functions_of("a.cc", "int a;\n\nvoid f(int b,\n       int c)\n{\n}\n")
        self.assertEqual([(function.name, function.first_line, function.lines) for function in found], [("f", 5, 2)])

    def test_python(self):
        found = functions.functions_of("a.py", "class A:\n    def f(self):\n        def g():\n            pass\n        return g\n")
        self.assertEqual([(function.name, function.lines) for function in found], [("A.f", 4), ("A.f.g", 2)])

    def test_unbalanced(self):
        for text in ("void f() {", "}", "void f() { { }"):
            with self.assertRaises(functions.UnbalancedError):
                functions.functions_of("a.cc", text)


class Ratchet(CheckerTest):
    SCRIPT = "ratchet.py"

    def list_entries(self, **kinds):
        self.plant("tools/ratchet.json", json.dumps({"functions": {}, "files": {}, **kinds}))

    def listed(self):
        return json.loads(self.read("tools/ratchet.json"))

    def test_limits(self):
        self.plant("src/a.cc", function_text("f", 70))
        self.plant("src/b.cc", "int x;\n" * 1000)
        self.assertIn("1 functions, 2 files, 0 listed", self.expect_clean())
        self.plant("src/a.cc", "int x;\n" + function_text("f", 71))
        self.plant("src/b.cc", "int x;\n" * 1001)
        self.expect_problems("src/a.cc:2: function src/a.cc:f has 71 lines; at most 70", "src/b.cc:1: file src/b.cc has 1001 lines")

    def test_listed_ones_may_not_grow(self):
        self.list_entries(functions={"src/a.cc:f": 80}, files={"src/b.cc": 1100})
        self.plant("src/a.cc", function_text("f", 80))
        self.plant("src/b.cc", "int x;\n" * 1100)
        self.expect_clean()
        self.plant("src/a.cc", function_text("f", 81))
        self.plant("src/b.cc", "int x;\n" * 1101)
        self.expect_problems("function src/a.cc:f grew from 80 to 81 lines", "file src/b.cc grew from 1100 to 1101 lines")

    def test_update_only_shrinks(self):
        self.list_entries(functions={"src/a.cc:f": 90, "src/a.cc:g": 90, "src/a.cc:gone": 90, "src/a.cc:small": 90})
        self.plant("src/a.cc", function_text("f", 80) + function_text("g", 95) + function_text("small", 60) + function_text("new", 72))
        self.expect_problems("f: 90 -> 80;", "gone: 90 -> within 70;", "small: 90 -> within 70;", "src/a.cc:g grew", "src/a.cc:new has 72")
        self.expect_problems("src/a.cc:g grew", "src/a.cc:new has 72", options=["--update"])
        self.assertEqual(self.listed()["functions"], {"src/a.cc:f": 80, "src/a.cc:g": 90})
        self.expect_clean("--update", "--accept")
        self.assertEqual(self.listed()["functions"], {"src/a.cc:f": 80, "src/a.cc:g": 95, "src/a.cc:new": 72})
        self.expect_clean()

    def test_what_cannot_be_measured_is_a_problem(self):
        self.plant("src/a.cc", "void f() {\n")
        self.plant("tools/a.py", "def f(:\n")
        self.expect_problems("src/a.cc: line 1: `{` is never closed", "tools/a.py:1: ")


if __name__ == "__main__":
    unittest.main()
