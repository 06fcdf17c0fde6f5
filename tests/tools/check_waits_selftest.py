#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_waits.py finds every planted sleep, and nothing else."""
import unittest

from checker import SPDX, CheckerTest

NAP = "sle" + "ep"  # not in this file
PYTHON = "#!/usr/bin/python3\n" + SPDX.replace("//", "#")
CPP_SLEEPS = [
    f"{NAP}(1);",
    f"::u{NAP}(10'000);",
    f"nano{NAP}(&pause, nullptr);",
    f"::clock_nano{NAP}(CLOCK_MONOTONIC, 0, &pause, nullptr);",
    f"std::this_thread::{NAP}_for(std::chrono::seconds{{1}});",
    f"sys::{NAP}_until(clock.now());",
    "::poll(nullptr, 0, 100);",
    "select(0, nullptr, nullptr, nullptr, &pause);",
    f'std::system("{NAP} 3 && true");',
]
CPP_FINE = f"""
// {NAP}(1) in a comment
const char* text = "/usr/bin/{NAP}"; const char* other = "{NAP}(1)";
bool asleep(int); int {NAP}s = 1; {NAP}er(); poll(fds.data(), fds.size(), 100); select(fd + 1, &set, nullptr, nullptr, &limit);
changed.wait_for(lock, kLong, is_done);
"""
PYTHON_SLEEPS = [
    f"time.{NAP}(1)",
    f"{NAP}(0.5)",
    f"await asyncio.{NAP}(1)",
    "select.select([], [], [], 1)",  # allowed: a text for the checker
    "threading.Event().wait(1)",  # allowed: a text for the checker
    f'subprocess.run(["{NAP}", "3"])',
    f'subprocess.run("x; {NAP} 3", shell=True)',
    f'program = "import time; time.{NAP}(3)"',
]
PYTHON_FINE = f"""
# time.{NAP}(1) in a comment
stack = ("main", "{NAP}", "read")
select.select([pipe], [], [], 30)
process.wait(timeout=30)
{NAP}er(1)
"""
CASE_SLEEPS = [
    f"run       {NAP} 5; kansoku jobs",
    f"before    {NAP} 60",
    f"run       (true; u{NAP} 100) && /bin/{NAP} 1",
    f"setup     printf 'int main(void){{ {NAP}(2); }}' > {{{{tmp}}}}/m.c",
    f"run       /usr/bin/python3 -c 'import time; time.{NAP}(1)'",
    f"run       true; {NAP}",
]


class CheckWaits(CheckerTest):
    SCRIPT = "check_waits.py"

    def test_clean_tree_passes(self):
        self.plant("src/trace/a_test.cc", SPDX + CPP_FINE)
        self.plant("tests/fleet/a.py", PYTHON + PYTHON_FINE)
        self.plant("tests/cases/a/a.case", f"# {NAP} 5\ncase a-{NAP}er\nrun echo a{NAP} {NAP}y no-{NAP}\n")
        self.assertIn("3 files, 0 lines excused", self.expect_clean())

    def test_every_kind_of_sleep(self):
        self.plant("src/trace/a_test.cc", SPDX + "\n".join(CPP_SLEEPS))
        self.plant("tests/fleet/a.py", PYTHON + "\n".join(PYTHON_SLEEPS))
        self.plant("tests/cases/a/a.case", "case a\n" + "\n".join(CASE_SLEEPS))
        self.expect_problems(*(f"src/trace/a_test.cc:{line}: " for line in range(2, len(CPP_SLEEPS) + 2)),
                             *(f"tests/fleet/a.py:{line}: " for line in range(3, len(PYTHON_SLEEPS) + 3)),
                             *(f"tests/cases/a/a.case:{line}: " for line in range(2, len(CASE_SLEEPS) + 2)))

    def test_which_files_are_tests(self):
        call = f"u{NAP}(1);\n"
        tests = ("src/a/a_test.cc", "src/a/b_for_test.h", "src/a/b_for_test.c", "tests/gpu/a.cc", "tests/programs/a.c")
        others = ("src/a/a.cc", "src/a/a_bench.cc", "tests/watch/jobs/a.cu", "tests/harness/a.cc", "bench/a/a.cc", "tests/corpus/a/a.c")
        for path in tests + others:
            self.plant(path, SPDX + call)
        for path in ("tests/eval/a.py", "tests/faults/jobs/a.py", "examples/a.py", "tools/a.py"):
            self.plant(path, f"time.{NAP}(1)\n")
        self.plant("tests/cases/a/a.sh", f"#!/bin/sh\n{NAP} 1\n")
        self.expect_problems("tests/cases/a/a.sh:2: ", *(f"{path}:2: " for path in tests))

    def test_a_lambda_of_simulated_time(self):
        self.plant("src/a/a_test.cc", SPDX + f"auto {NAP} = [](Nanos) {{ return 1; }};\nstart({NAP}(Nanos{{3}}));\n::u{NAP}(1);\n")
        self.expect_problems("src/a/a_test.cc:4: ")

    def test_excuses_need_a_reason(self):
        self.plant("src/a/a_test.cc", SPDX + f"u{NAP}(1);  // allowed: a poll loop\nu{NAP}(1);  // allowed:\nu{NAP}(1);  // often\n")
        self.plant("tests/fleet/a.py", PYTHON + f"time.{NAP}(1)  # allowed: a slow program\n")
        self.expect_problems("src/a/a_test.cc:3: u" + NAP + ": `allowed:` without a reason", "src/a/a_test.cc:4: ")
        self.plant("src/a/a_test.cc", SPDX + f"u{NAP}(1);  // allowed: a poll loop\n")
        self.assertIn("2 files, 2 lines excused", self.expect_clean())
        listed = self.expect_clean("--list")
        self.assertIn(f"src/a/a_test.cc:2: u{NAP}: allowed: a poll loop\n", listed)
        self.assertIn(f"tests/fleet/a.py:3: {NAP}: allowed: a slow program\n", listed)

    def test_excuses_of_cases_stand_above(self):
        self.plant("tests/cases/a/a.case", f"case a\n# {NAP} allowed: the process that is watched\nbefore {NAP} 60\nrun {NAP} 1\n")
        self.expect_problems("tests/cases/a/a.case:4: ")
        self.plant("tests/cases/a/a.case", f"case a\n# {NAP} allowed: it is watched\nbefore {NAP} 60\n")
        self.assertIn(f"tests/cases/a/a.case:3: {NAP}: allowed: it is watched\n", self.expect_clean("--list"))

    def test_excuses_of_cases_that_excuse_nothing(self):
        self.plant("tests/cases/a/a.case", f"case a\n# {NAP} allowed:\nbefore {NAP} 60\n# {NAP} allowed: it is watched\nrun true\n")
        self.expect_problems("tests/cases/a/a.case:3: " + NAP + ": `allowed:` without a reason",
                             f"tests/cases/a/a.case:4: `{NAP} allowed:` above a line that does not {NAP}")


if __name__ == "__main__":
    unittest.main()
