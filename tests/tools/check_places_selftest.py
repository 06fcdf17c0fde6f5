#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_places.py finds paths, lines and names that a page cites and that are not there, and nothing else."""
import unittest

from checker import CheckerTest

CODE = """#include "a/list.h"

// Sorter::sort is below.
namespace kansoku::a {

bool helper(const List& list) {
  return Sorter::sort(list);
}

Result<List> Sorter::sort(const List& list) {
  return List::copy(list);
}
"""


class CheckPlaces(CheckerTest):
    SCRIPT = "check_places.py"

    def setUp(self):
        super().setUp()
        self.plant("src/a/sorter.cc", CODE)
        self.plant("src/a/sorter.h", "class Sorter {};\ninline constexpr int kLongest = 3;\n")
        self.plant("src/a/internal/deep/list.cc", "int list_of() { return 1; }\n")
        self.plant("share/probes/gloo.toml", "name = 1\n")
        self.plant("src/a/README.md", "# a: sorts\n\n`sorter.h`, `internal/deep/list`, `deep/list.cc` and `share/probes/*.toml`.\n")
        self.plant("docs/tour.md", "# Tour\n\n`src/a/sorter.cc`, `a/sorter`, `sorter.h`, `src/a/`, `share/probes/NAME.toml`\n")

    def test_clean_tree_passes(self):
        self.assertIn("9 paths and names on 2 pages", self.expect_clean())

    def test_what_is_no_path(self):
        self.plant("CONTRIBUTING.md", "# C\n\n`a / b`, `/proc/PID/maps`, `text/html`, `kansoku.diagnosis/3`, `build/x.h`, `--opt`, `a.b`, `libc.so.6`\n\n"
                   "    cat src/nowhere.cc\n")
        self.expect_clean()

    def test_stale_paths(self):
        self.plant("docs/recipes.md", "# R\n\n`src/a/gone.cc`, `gone.h`,\n`src/b/*.cc`, `a/gone`, `share/probes/NAME.json`, `internal/deep/list.cc`\n")
        self.plant("src/a/README.md", "# a: sorts\n\n`internal/list.cc`, `deep/gone`, `gloo.toml`\n")
        self.expect_problems("docs/recipes.md:3: `src/a/gone.cc`", "docs/recipes.md:3: `gone.h`", "docs/recipes.md:4: `src/b/*.cc`",
                             "docs/recipes.md:4: `a/gone`", "docs/recipes.md:4: `share/probes/NAME.json`",
                             "docs/recipes.md:4: `internal/deep/list.cc`", "src/a/README.md:3: `internal/list.cc`",
                             "src/a/README.md:3: `gloo.toml`")

    def test_lines_of_functions(self):
        self.plant("docs/event.md", "# E\n\n`src/a/sorter.cc:10` `Sorter::sort`, `src/a/sorter.cc:6`\n`helper`, `src/a/sorter.h:2` `kLongest`\n")
        self.expect_clean()
        stale = ("# E\n\n`src/a/sorter.cc:3` `Sorter::sort`, `src/a/sorter.cc:7` `helper`, `src/a/sorter.h:9` `kLongest`,\n"
                 "`src/a/gone.cc:1` `f`, `src/a/sorter.cc:1` `gone`, `src/a/sorter.cc:1`\n")
        self.plant("docs/event.md", stale)
        others = ("docs/event.md:4: src/a/gone.cc:1: no such file", "docs/event.md:4: src/a/sorter.cc:1: no gone in that file",
                  "docs/event.md:4: src/a/sorter.cc:1: without the name")
        self.expect_problems("docs/event.md:3: src/a/sorter.cc:3: Sorter::sort is in line 10", "docs/event.md:3: src/a/sorter.cc:7: helper is in",
                             "docs/event.md:3: src/a/sorter.h:9: kLongest is in line 2", *others)
        self.expect_problems(*others, options=("--write",))
        self.assertIn("`src/a/sorter.cc:10` `Sorter::sort`, `src/a/sorter.cc:6` `helper`, `src/a/sorter.h:2` `kLongest`,", self.read("docs/event.md"))

    def test_names_in_files(self):
        self.plant("docs/principles.md", "# P\n\n`helper` (`src/a/sorter.cc`), `Sorter` in `sorter.h`, `list_of` in `src/a`, `words` in `sorter.h`.\n\n"
                   "| file | holds |\n|---|---|\n| `sorter.h` | `kLongest`, `Sorter::sort` |\n")
        self.expect_clean()
        self.plant("docs/principles.md", "# P\n\n`kGone` in `src/a/sorter.h`, `Gone::sort2` (`sorter.h`), `list_gone()` of `src/a`\n\n"
                   "| file | holds |\n|---|---|\n| `sorter.h` | `kShortest`, `Sorter` |\n")
        self.expect_problems("docs/principles.md:3: `kGone`: not in src/a/sorter.h", "docs/principles.md:3: `Gone::sort2`",
                             "docs/principles.md:3: `list_gone`", "docs/principles.md:7: `kShortest`: not in sorter.h")

    def test_the_tour_shows_the_modules(self):
        table = "\n| module | contents |\n|---|---|\n| `a` | lists |\n| `b` | more |\n"
        self.plant("src/layers.txt", "# arrows\na:\nb: a\n")
        self.plant("docs/tour.md", "# Tour\n" + table)
        self.expect_clean()
        self.plant("src/layers.txt", "b:\na:\n")
        self.expect_problems("docs/tour.md:3: the modules stand in another order")
        self.plant("src/layers.txt", "a:\nc: a\n")
        self.expect_problems("docs/tour.md:3: no row for c", "docs/tour.md:3: b is no module")
        self.plant("docs/tour.md", "# Tour\n")
        self.expect_problems("docs/tour.md: no table of modules")


if __name__ == "__main__":
    unittest.main()
