#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The evaluation's bookkeeping, without llama.cpp: a program that fails a case, ends at another and has one that is listed twice."""
import subprocess
import unittest
import unittest.mock

import evaluate

CASES = ["ADD(type=f32,n=1)", "ADD(type=f32,n=2)", "ADD(type=f16,n=3)", "MUL(type=f32,n=1)", "MUL(type=f32,n=2)"]


def program(bad, deadly):
    """What test-backend-ops prints for the cases of -o, in color, as it does."""
    def run(_variant, _name, *arguments, timeout=None):
        lines, status = [], 0
        for case in (case for case in CASES if case in arguments[-1]):
            if case == deadly:
                status = -6
                lines.append(f"  {case}: ")
                break
            if case == bad:
                lines.append(f"[ADD] ERR = 0.5 > 0.0000001   {case}: \x1b[1;31mFAIL\x1b[0m")
            lines.append(f"  {case}: \x1b[1;32mOK\x1b[0m")
        return subprocess.CompletedProcess([], status, "\n".join(lines), f"timeout {timeout}, aborted")
    return run


class Evaluation(unittest.TestCase):
    def test_each_case_has_a_verdict_whatever_the_program_does(self):
        with unittest.mock.patch.object(evaluate, "run", program(bad=CASES[1], deadly=CASES[2])):
            results = evaluate.judged("whole-80", CASES)
        self.assertEqual([results[case][0] for case in CASES], ["OK", "FAIL", "DIED", "OK", "OK"])
        self.assertIn("ERR = 0.5", results[CASES[1]][1])
        self.assertIn("aborted", results[CASES[2]][1])

    def test_marked_and_refused_is_no_success(self):
        said = []
        with unittest.mock.patch.object(evaluate, "say", said.append):
            supported, ok = {case: True for case in CASES}, {case: ("OK", "") for case in CASES}
            self.assertEqual(evaluate.table(supported, set(CASES), ok, {"ADD": 1, "MUL": 2}), 0)
            self.assertEqual(evaluate.table(supported | {CASES[0]: False}, set(), ok, {"ADD": 1, "MUL": 2}), 0)
            self.assertEqual(evaluate.table(supported | {CASES[0]: False}, set(CASES), ok, {"ADD": 1, "MUL": 2}), 1)
            self.assertEqual(evaluate.table(supported, set(), ok | {CASES[4]: ("FAIL", "")}, {"ADD": 1, "MUL": 2}), 1)
        self.assertIn(f"refused: {CASES[0]} ", said)
        self.assertIn("| MUL | 1 | 1 | 0 | 0 | 0 | 0 | 2 |", said)

    def test_a_mark_of_an_older_version_stands_for_cases_with_more_parameters(self):
        cases = ["ADD(ne=[1,2],v=0,new=1)", "ADD(ne=[1,3],v=0,new=1)", "MUL(ne=[1,2],v=0,new=1)"]
        found, without_case = evaluate.marks_of(cases, {"ADD(ne=[1,2],v=0)", "ADD(ne=[1,2],v=1)", "SUB(v=0)"})
        self.assertEqual(found, {cases[0]})
        self.assertEqual(without_case, {"ADD(ne=[1,2],v=1)", "SUB(v=0)"})

    def test_parts_have_bounds_and_hold_every_case_once(self):
        cases = [f"ADD(n={i})" for i in range(3 * evaluate.CASES_OF_PART + 1)] + ["MUL(n=" + "1" * evaluate.LETTERS_OF_PART + ")", "MUL(n=2)"]
        parts = evaluate.parts_of(cases)
        self.assertEqual([len(wanted) for _, wanted in parts], [evaluate.CASES_OF_PART] * 3 + [1, 1, 1])
        self.assertEqual([case for _, wanted in parts for case in wanted], cases)


if __name__ == "__main__":
    unittest.main()
