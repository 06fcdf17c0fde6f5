#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/fresh_root/walk.py: every target and every command that the pages name has a row, and one without is found."""
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fresh_root"))
import walk  # noqa: E402


class FreshRoot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.mkdir(os.path.join(self.root, "docs"))
        for name in ("README.md", "CONTRIBUTING.md"):
            self.plant(name, "")
        targets = " ".join(walk.TARGETS)
        self.plant("Makefile", f".PHONY: {targets}\n{targets}: ;\n")

    def plant(self, path, text, mode="w"):
        with open(os.path.join(self.root, path), mode, encoding="utf-8") as file:
            file.write(text)

    def test_this_tree_is_known(self):
        self.assertEqual(walk.problems(), [])

    def test_a_small_tree_is_known(self):
        self.plant("README.md", "    make demo   # a comment\n    build/kansoku watch\n\nSee `kansoku cuda report x.pftrace` and `kansoku diff before after`.\n")
        self.assertEqual(walk.problems(self.root), [])

    def test_what_has_no_row_is_found(self):
        self.plant("Makefile", "polish-eval: build\n\ttrue\n", "a")
        self.plant("README.md", "    make shine\n    kansoku polish now\n")
        self.plant("docs/page.md", "`kansoku cuda polish` and `make demo polish`\n")
        self.assertEqual(walk.problems(self.root), [
            "Makefile: polish-eval is no row of TARGETS: how far is it walked?", "README.md:1: make shine is no row of TARGETS",
            "README.md:2: kansoku polish now is no row of KANSOKU", "docs/page.md:1: kansoku cuda polish is no row of KANSOKU",
            "docs/page.md:1: make polish is no row of TARGETS"])

    def test_a_row_without_a_target_is_found(self):
        targets = [name for name in walk.TARGETS if name != "bench"]
        self.plant("Makefile", f"{' '.join(targets)}: ;\n")
        self.assertEqual(walk.problems(self.root), ["TARGETS: the Makefile has no bench"])

    def test_a_phony_target_without_a_rule_is_found(self):
        targets = " ".join(walk.TARGETS)
        without = " ".join(name for name in walk.TARGETS if name != "deps-softgpu")
        self.plant("Makefile", f".PHONY: {targets}\n{without}: deps-%:\n\ttrue\n")
        self.assertIn("Makefile: deps-softgpu is phony and has no rule: make takes it for done", walk.problems(self.root))

    def test_each_command_is_typed_once_with_the_program_of_the_build(self):
        typed = walk.typed()
        self.assertEqual(len(typed), len(set(typed)))
        self.assertIn("make softgpu", typed)
        self.assertFalse([command for command in typed if command.startswith("kansoku ")])


if __name__ == "__main__":
    unittest.main()
