#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_commits.py finds new commits with a long subject or without a body, and nothing else."""
import subprocess
import unittest

from checker import CheckerTest

LONG, FITS = "tools: " + "x" * 66, "tools: " + "x" * 65


class CheckCommits(CheckerTest):
    SCRIPT = "check_commits.py"

    def git(self, *arguments):
        who = ("-c", "user.name=tester", "-c", "user.email=tester@localhost")
        done = subprocess.run(["git", "-C", self.root, *who, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def commit(self, message):
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def setUp(self):
        super().setUp()
        self.git("init", "-q", "-b", "main")
        self.base = self.commit("an old commit without a body, and longer than any subject may be in this house")

    def test_old_commits_do_not_count(self):
        self.commit(f"{FITS}\n\nBecause it is needed.")
        self.assertTrue(self.expect_clean("--base", self.base).endswith("commits: 1 messages\n"))

    def test_long_subjects_and_missing_bodies(self):
        self.commit(f"{LONG}\n\nBecause it is needed.")
        self.commit("tools: no reason")
        self.expect_problems(f"{LONG}: a subject of 73 columns", "tools: no reason: no body", options=("--base", self.base))

    def test_merges_do_not_count(self):
        self.git("checkout", "-q", "-b", "side")
        self.commit("side: work\n\nBecause it is needed.")
        self.git("checkout", "-q", "main")
        self.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
        self.assertTrue(self.expect_clean("--base", self.base).endswith("commits: 1 messages\n"))

    def test_without_history_it_is_skipped(self):
        subprocess.run(["rm", "-rf", f"{self.root}/.git"], check=True)
        self.assertEqual(self.run_checker().returncode, 77)
        done = self.run_checker("--base", "nothing")
        self.assertEqual(done.returncode, 77)


if __name__ == "__main__":
    unittest.main()
