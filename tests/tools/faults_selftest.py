#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The fault suite's own judgement: incomplete truths are refused, and answers are compared with the truth as it says."""
import os
import sys
import tempfile
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "faults")]
from truth import judge, load  # noqa: E402

SLOW = '''name = "slow"
what = "one rank is slow"
expects = "slow"
ranks = [1]
function = "read_.*"
kinds = ["slow_input"]
doses = [0.5]
models = ["mlp"]
inject = { by = "job", fault = "input_sleep" }
'''
CLEAN = (SLOW.replace('"slow"', '"clean"', 1).replace('"slow"', '"nothing"').replace("[1]", '"none"').replace("[0.5]", "[]")
         .replace('["slow_input"]', '["rotating"]'))


def load_text(name, text):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, name + ".toml"), "w", encoding="utf-8") as file:
            file.write(text)
        return load(folder)


def finding(kind="slow_input", ranks=(1,), function="sleep", stack=("main", "read_disk", "sleep")):
    return {"kind": kind, "ranks": list(ranks), "function": function, "stack": list(stack)}


class Truths(unittest.TestCase):
    def refused(self, old, new, why):
        self.assertIn(why, " ".join(load_text("slow", SLOW.replace(old, new))[1]))

    def test_a_complete_one_is_taken(self):
        faults, problems = load_text("slow", SLOW)
        self.assertEqual((list(faults), problems), (["slow"], []))

    def test_what_is_missing_or_unknown_is_named(self):
        self.refused('function = "read_.*"\n', "", "function")
        self.refused("read_.*", "read_(", "function")
        self.refused('["slow_input"]', "[]", "kinds is empty")
        self.refused("[1]", '"some"', "ranks is neither")
        self.refused('"mlp"', '"resnet"', "model resnet is unknown")
        self.refused("0.5", "50", "dose 50 is no share")
        self.refused('"job"', '"hammer"', "injector 'hammer' does not exist")
        self.refused("input_sleep", "no_such", "knows no fault 'no_such'")
        self.refused('name = "slow"', 'name = "fast"', "its name is fast")
        self.refused("doses", "dozes", "dozes")


class Judgement(unittest.TestCase):
    def judged(self, text, *findings):
        fault = next(iter(load_text("x", text)[0].values()))
        return judge(fault, 4, {"findings": list(findings)})

    def test_the_first_finding_counts(self):
        self.assertTrue(self.judged(SLOW, finding(), finding(ranks=(3,)))["right"])
        self.assertFalse(self.judged(SLOW, finding(ranks=(3,)), finding())["right"])
        self.assertFalse(self.judged(SLOW)["detected"])

    def test_each_part_is_told(self):
        self.assertFalse(self.judged(SLOW, finding(ranks=(1, 2)))["rank"])
        self.assertFalse(self.judged(SLOW, finding(kind="slow_other"))["kind"])
        self.assertFalse(self.judged(SLOW, finding(function="main", stack=("main",)))["function"])

    def test_no_function_is_an_answer(self):
        link = SLOW.replace("read_.*", "link")
        self.assertFalse(self.judged(link, finding())["function"])
        self.assertTrue(self.judged(link, finding(function="", stack=()))["function"])

    def test_without_a_culprit_findings_are_false_alarms(self):
        self.assertTrue(self.judged(CLEAN)["right"])
        self.assertEqual(self.judged(CLEAN, finding(), finding())["false_alarms"], 2)
        self.assertTrue(self.judged(CLEAN, finding(kind="rotating", ranks=range(4)))["right"])
        self.assertFalse(self.judged(CLEAN, finding(kind="rotating"))["right"])


if __name__ == "__main__":
    unittest.main()
