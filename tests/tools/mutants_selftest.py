#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/mutants/draw.py changes what runs, and leaves alone what is computed by the compiler or could harm other processes."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

from checker import ROOT

sys.path.insert(0, os.path.join(ROOT, "tests/mutants"))
import draw  # noqa: E402

SOURCE = """#include <csignal>
namespace k {
constexpr int twice(int a) { return a + a; }
int stop(int pid) { if (pid > 1) return ::kill(pid, SIGTERM); return 0; }
int least(const int* values, int count) {
  static const int kStart = 1 + 1;
  int least = values[0];
  for (int i = kStart - 2; i < count; ++i) {
    if (values[i] < least && count != 0) least = values[i];
  }
  return least;
}
}  // namespace k
"""


@unittest.skipUnless(importlib.util.find_spec("clang"), "needs python3-clang-14")
class Mutants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.root, self.tree = os.path.join(folder.name, "root"), os.path.join(folder.name, "tree")
        for place in (self.root, self.tree):
            os.makedirs(os.path.join(place, "src/m"))
        self.path = os.path.join(self.root, "src/m/least.cc")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(SOURCE)
        self.entries = [(self.path, "m", ["g++", "-std=c++20"], self.root)]

    def draw(self, count, seed=1):
        return draw.draw(self.entries, self.root, lambda words: words, count, seed)

    def test_what_is_changed(self):
        from clang.cindex import Index
        text = draw.read(self.path)
        found = draw.places(Index.create().parse(self.path, args=["-std=c++20"]), self.path, text)
        self.assertEqual(sorted((one.line, one.kind, one.before) for one in found), [
            (8, "- as +", "kStart - 2"), (8, "< as <=", "i < count"), (9, "!= as ==", "count != 0"), (9, "&& as ||", "values[i] < least && count != 0"),
            (9, "< as <=", "values[i] < least"), (9, "condition turned", "values[i] < least && count != 0")])

    def test_the_same_seed_draws_the_same(self):
        self.assertEqual(self.draw(3), self.draw(3))

    def test_the_changed_tree_compiles_and_each_can_be_switched_on(self):
        drawn = self.draw(3)
        draw.apply(drawn, self.root, self.tree)
        changed = os.path.join(self.tree, "src/m/least.cc")
        with open(changed, encoding="utf-8") as file:
            text = file.read()
        for number in range(1, 4):
            self.assertIn(f"on({number})", text)
        self.assertNotIn(draw.NUMBER, text)
        header = os.path.join(ROOT, "tests/mutants/mutants.h")
        program, main = os.path.join(self.tree, "p"), os.path.join(self.tree, "main.cc")
        with open(main, "w", encoding="utf-8") as file:
            file.write("namespace k { int least(const int*, int); }\n"
                       "int main() { const int v[] = {5, 2, 9}; return k::least(v, 3); }\n")
        subprocess.run(["g++", "-std=c++20", "-include", header, f'-DKANSOKU_MUTANTS="{self.tree}"', "-DKANSOKU_MUTANTS_COUNT=3", changed, main,
                        "-o", program], check=True)
        results = []
        for number in range(4):
            with open(os.path.join(self.tree, "active"), "w", encoding="utf-8") as file:
                file.write(str(number))
            results.append(subprocess.run([program], check=False).returncode)
        self.assertEqual(results[0], 2)
        self.assertGreater(len(set(results)), 1)
        os.makedirs(os.path.join(self.tree, "reached"))
        with open(os.path.join(self.tree, "active"), "w", encoding="utf-8") as file:
            file.write("-1")
        subprocess.run([program], check=False, env={**os.environ, "KANSOKU_MUTANTS_TEST": "7"})
        self.assertEqual(sorted(os.listdir(os.path.join(self.tree, "reached"))), ["7.1", "7.2", "7.3"])


if __name__ == "__main__":
    unittest.main()
