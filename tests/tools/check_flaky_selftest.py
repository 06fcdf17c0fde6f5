#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_flaky.py runs what it shall, as often as it says, and tells what failed: on a small build folder written by hand."""
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import unittest

from checker import ROOT, SPDX, CheckerTest

sys.path.insert(0, os.path.join(ROOT, "tools"))
import changed_tests  # noqa: E402
import check_flaky  # noqa: E402
import ctest_suite  # noqa: E402

PATIENCE_S = 300
# Of the runs with the numbers 0, 1, ... the third, the thirteenth, ... fail.
ONE_IN_TEN = """exec 9>> lock; flock 9; read n < count; echo $((n + 1)) > count
echo this is run $n; test $((n % 10)) -ne 3"""
# Of two copies that use one file, the first waits for the second, and the second fails.
COLLIDES = "if mkfifo fixed; then read line < fixed; rm fixed; else echo there > fixed; echo fixed is taken; exit 1; fi"
CAREFUL = 'test "$A-$B" = 1-2 && test -z "$(ls -A $TMPDIR)" && ls -ld $TMPDIR | grep -q ^drwxrwxrwt && mkdir $TMPDIR/mine'
STUCK = "exec 8>> lock; flock -s 8; echo ready > ready; read line < never"
# Behaves as a GoogleTest program: Suite.Touchy fails beside another test, Suite.Crash ends a process that it shares.
GTEST = r"""#!/bin/sh
for part; do case $part in --gtest_filter=*) names=${part#*=};; esac; done
IFS=:; set -- $names; status=0
for name; do
  printf '[ RUN      ] %s\nthis is %s\n' "$name" "$name"
  state='       OK '
  case $name,$# in
    Suite.Gate,*) state='  SKIPPED ';;
    Suite.*,1) ;;
    Suite.Crash,*) kill -ABRT $$;;
    Suite.Touchy,*) state='  FAILED  '; status=1;;
  esac
  echo "no line of its own: [$state] $name (0 ms)"
done
exit $status
"""


class FlakyTest(CheckerTest):
    SCRIPT = "check_flaky.py"

    def setUp(self):
        super().setUp()
        self.build = os.path.join(self.root, "build/release")
        self.plant("build/release/CTestTestfile.cmake", "")

    def add(self, name, command, **properties):
        """A test of the folder; a text is a script of the shell."""
        command = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        with open(os.path.join(self.build, "CTestTestfile.cmake"), "a", encoding="utf-8") as file:
            file.write(f"add_test([==[{name}]==] {' '.join(f'[==[{part}]==]' for part in command)})\n")
            for key, value in properties.items():
                file.write(f"set_tests_properties([==[{name}]==] PROPERTIES {key} [==[{value}]==])\n")

    def add_gtest(self, *names):
        self.plant("build/release/m_test", GTEST)
        program = os.path.join(self.build, "m_test")
        os.chmod(program, 0o755)
        for name in names:
            self.add(f"m.{name}", [program, f"--gtest_filter={name}", "--gtest_also_run_disabled_tests"],
                     SKIP_REGULAR_EXPRESSION=r"\[  SKIPPED \]")

    def add_unit(self, *names):
        """The same as one test of ctest, which runs the whole program."""
        listed = "".join(f"echo {name.partition('.')[0]}.; echo '  {name.partition('.')[2]}  # GetParam() = 1'\n" for name in names)
        self.plant("build/release/u_test", GTEST.replace("for part;", f"if [ $1 = --gtest_list_tests ]; then\n{listed}exit; fi\nfor part;", 1))
        os.chmod(self.path("u_test"), 0o755)
        self.add("u.unit", ["/usr/bin/python3", os.path.join(ROOT, "tools/run_unit.py"), self.path("u_test")], SKIP_RETURN_CODE="77")

    def flaky(self, *options, status=0):
        if "--busy" not in options:
            options += ("--busy", "0")
        done = self.run_checker("--seed", "1", *options)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def path(self, name):
        return os.path.join(self.build, name)

    def wait_until_free(self):
        """Until nobody holds the lock any more; blocks."""
        with open(self.path("lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


class Runs(FlakyTest):
    def test_failures_are_counted_and_shown(self):
        self.plant("build/release/count", "0\n")
        self.add("tenth", ONE_IN_TEN)
        self.add("collides", COLLIDES)
        self.add("good", CAREFUL, ENVIRONMENT="A=1;B=2")
        self.add("alone", "touch alone; exit 1", RUN_SERIAL="TRUE")
        self.add("alive", "touch alone; exit 1", RESOURCE_LOCK="live")
        self.add("off", "touch off; exit 1", DISABLED="TRUE")
        self.add("gate", "echo needs more; exit 77", SKIP_RETURN_CODE="77")
        text = self.flaky("--rounds", "10", "--busy", "1", status=1)
        self.assertIn("short: 3 tests, 20 to 20 runs each", text)
        self.assertEqual(text.count("FAILED tenth (copy "), 2, text)
        self.assertRegex(text, r"FAILED tenth \(copy [AB], \d+\.\d\d s\): exit status 1\n   again: cd \S+ && /bin/sh -c .*(\n.*)?\n"
                               r"   \| this is run 3\n")
        self.assertIn("tenth: failed/ran 2/20\n", text)
        self.assertIn("collides: failed/ran 10/20\n", text)
        self.assertIn("   | fixed is taken\n", text)
        self.assertIn("skipped in every run: 1: gate\n", text)
        self.assertIn("serial, not run: 2: alone, alive\n", text)
        self.assertTrue(text.endswith("flaky: 2 problems\n"), text)
        self.assertFalse(os.path.exists(self.path("alone")) or os.path.exists(self.path("off")))

    def test_tests_of_a_whole_program_count_one_by_one(self):
        self.add_unit("Suite.Good", "Suite.Touchy", "Suite.Gate")
        tests = ctest_suite.load(self.build)
        self.assertEqual([test.name for test in tests], ["u.Suite.Good", "u.Suite.Touchy", "u.Suite.Gate"])
        text = self.flaky("--rounds", "5", status=1)
        self.assertIn("u.Suite.Touchy: failed/ran ", text)
        self.assertNotIn("u.Suite.Good: failed", text)
        self.assertIn("skipped in every run: 1: u.Suite.Gate\n", text)

    def test_what_ctest_calls_passed(self):
        self.add("says", "echo It is well; exit 1", PASS_REGULAR_EXPRESSION="is bad;is well")
        self.add("fails", "exit 1", WILL_FAIL="TRUE")
        self.add("says-bad", "echo It is bad", FAIL_REGULAR_EXPRESSION="is bad")
        self.add("dies", "kill -SEGV $$")
        self.add("missing", ["/nowhere/program"])
        text = self.flaky("--rounds", "10", status=1)
        for name in ("says-bad", "dies", "missing"):
            self.assertIn(f"{name}: failed/ran 20/20\n", text)
        self.assertIn("dies (copy A, ", text)
        self.assertIn(": ended by signal 11\n", text)
        self.assertIn("cannot be started: it is not built\n", text)
        self.assertTrue(text.endswith("flaky: 3 problems\n"), text)

    def test_too_few_runs(self):
        self.add("good", "true")
        text = self.flaky("--rounds", "2", status=1)
        self.assertIn("ran 4 times, at least 20 are wanted: good\n", text)
        text = self.flaky("--minutes", "0", status=1)
        self.assertIn("ran 0 times, at least 20 are wanted: good\n", text)

    def test_what_does_not_fit_into_the_time_is_not_begun(self):
        self.add("good", "true")
        record = check_flaky.Record(ctest_suite.load(self.build)[0])
        record.count(ctest_suite.PASSED, 4.0, False)
        for number in ("--rounds=0", "--rounds=3"):
            options = check_flaky.arguments(["--root", self.root, number])
            self.assertEqual(check_flaky.Rounds([record], options).take(set(), 3.9), (None, True))
            self.assertFalse(check_flaky.Rounds([record], options).take(set(), 4.1)[1])

    def test_long_tests_run_less_often(self):
        self.add("good", "true")
        text = self.flaky("--rounds", "8", "--long", "0", "-j", "1")
        self.assertRegex(text, r"longer than 0 s: 1 tests, 6 to 6 runs each; fewest: good 6 \(0 to \d+ s\)\n")
        self.assertTrue(text.endswith("flaky: 1 tests, 6 runs, none failed\n"), text)
        text = self.flaky("--rounds", "5", "--long", "0", "-j", "1", status=1)
        self.assertIn("ran 4 times, at least 5 are wanted: good\n", text)

    def test_a_test_that_hangs_is_ended_with_all_that_it_started(self):
        os.mkfifo(self.path("never"))
        self.add("hangs", "echo begun; setsid sh -c 'exec 8>> lock; flock 8; read line < never' & wait", TIMEOUT="2")
        text = self.flaky("--rounds", "1", status=1)
        self.assertIn("not ended in 2 s\n", text)
        self.assertIn("hangs: failed/ran 2/2\n", text)
        self.assertIn("   | begun\n", text)
        self.wait_until_free()

    def test_a_signal_ends_everything(self):
        for name in ("ready", "never"):
            os.mkfifo(self.path(name))
        self.add("stuck", STUCK)
        ready = os.open(self.path("ready"), os.O_RDWR)
        self.addCleanup(os.close, ready)
        process = subprocess.Popen([sys.executable, os.path.join(ROOT, "tools/check_flaky.py"), "--root", self.root],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        seen = b""
        while seen.count(b"\n") < 2:
            self.assertTrue(select.select([ready], [], [], PATIENCE_S)[0], seen)
            seen += os.read(ready, 64)
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=PATIENCE_S)[0]
        self.assertEqual(process.returncode, 1, text)
        self.assertRegex(text, r"still running at the end, not counted: 2: stuck \(\d+ s\), stuck \(\d+ s\)\n")
        self.assertIn("stopped by SIGTERM\n", text)
        self.wait_until_free()

    def test_fixtures_and_locks(self):
        self.add("before", "echo made >> made", FIXTURES_SETUP="made")
        self.add("needs", 'test "$(cat made)" = made', FIXTURES_REQUIRED="made")
        self.add("behind", "rm made", FIXTURES_CLEANUP="made")
        self.add("locks", "echo begin >> log; ls > /dev/null; echo end >> log", RESOURCE_LOCK="log")
        text = self.flaky("--rounds", "10")
        self.assertIn("short: 2 tests, 20 to 20 runs each", text)
        self.assertEqual(self.read("build/release/log"), 20 * "begin\nend\n")
        self.assertFalse(os.path.exists(self.path("made")))
        self.add("broken", "exit 1", FIXTURES_SETUP="broken")
        self.add("needs-broken", "touch ran", FIXTURES_REQUIRED="broken")
        text = self.flaky("--rounds", "10", status=1)
        self.assertIn("broken: failed/ran 1/1\n", text)
        self.assertIn("ran 0 times, at least 20 are wanted: needs-broken\n", text)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_no_suite(self):
        self.assertIn("has no tests", self.flaky("--build", os.path.join(self.root, "nowhere"), status=2))
        self.add("odd", "true", ENVIRONMENT_MODIFICATION="A=set:1")
        self.assertIn("ENVIRONMENT_MODIFICATION", self.flaky(status=2))


class Together(FlakyTest):
    def test_tests_share_processes_in_four_rounds_of_five(self):
        self.add_unit("Suite.Good", "Suite.Touchy", "Suite.Gate", "In/Suite.Each/0")
        text = self.flaky("--rounds", "10", "-j", "1", status=1)
        self.assertIn("short: 3 tests, 20 to 20 runs each", text)
        self.assertIn("u.Suite.Touchy: failed/ran 16/20, 16 of them in one process with others\n", text)
        self.assertRegex(text, r"again: cd \S+ && \S+/u_test --gtest_filter=\S+:\S+ --gtest_shuffle "
                               r"--gtest_random_seed=\d+\n   \| \[ RUN      \] Suite\.Touchy\n   \| this is Suite\.Touchy\n")
        self.assertIn("skipped in every run: 1: u.Suite.Gate\n", text)
        self.assertTrue(text.endswith("flaky: 1 problem\n"), text)

    def test_a_crash_is_of_the_test_in_which_it_was(self):
        self.add_unit("Suite.Good", "Suite.Better", "Suite.Crash")
        text = self.flaky("--rounds", "2", "-j", "1", status=1)
        self.assertIn("u.Suite.Crash: failed/ran 2/4, 2 of them in one process with others\n", text)
        self.assertIn("the process ended in it: signal 6\n", text)
        ran = re.findall(r"--gtest_filter=(\S*)Suite\.Crash", text)[0].count(":")  # those behind it did not
        self.assertEqual(len(re.findall(r"u\.Suite\.(?:Good|Better) 4", text)), ran)
        self.assertEqual(len(re.findall(r"u\.Suite\.(?:Good|Better) 2", text)), 2 - ran)

    def test_the_seed_gives_the_order(self):
        self.add_unit(*(f"Suite.Good{number}" for number in range(4)), "Suite.Touchy")
        one, same = (re.findall(r"--gtest_filter=\S+", self.flaky("--rounds", "2", "-j", "1", status=1)) for _ in range(2))
        self.assertEqual(one, same)
        self.assertEqual(len(one), 2)

    def test_a_test_that_ctest_gives_a_process_of_its_own_has_one_here(self):
        self.add_gtest("Suite.Good", "Suite.Touchy", "Suite.Crash")
        self.assertIn("short: 3 tests, 20 to 20 runs each", self.flaky("--rounds", "10", "-j", "1"))


class Changed(FlakyTest):
    SOURCE = SPDX + """#include "m/a.h"

struct Fixture {};

TEST(A, One) {
  EXPECT_TRUE(one());
  EXPECT_TRUE(two());
}

TEST_F(A, Two) {
  if (two()) { more("}"); }
}

TEST_P(Each, Of) {}
"""
    FILES = {
        ".gitignore": "/build/\n",
        "src/m/a.cc": SPDX + "int a;\n",
        "src/m/a_test.cc": SOURCE,
        "src/m/b_test.cc": SPDX + '#include "m/other_for_test.h"\nTEST(B, One) {}\n',
        "src/m/other_for_test.h": SPDX + '#include "m/inner_for_test.h"\n',
        "src/m/inner_for_test.h": SPDX + "int inner();\n",
        "src/m/inner_for_test.cc": SPDX + "int inner() { return 1; }\n",
        "tests/cases/x/c.case": "case c\nrun {{source}}/tests/cases/x/beside.py\nrun {{source}}/tests/programs/far.py\n",
        "tests/cases/x/d.case": "case d\nrun true\n",
        "tests/cases/x/beside.py": "import helper\n",
        "tests/programs/far.py": "print()\n",
        "tests/fleet/run.py": "import kit\nfrom helper import it\n",
        "tests/kit/job.py": "state = 1\n",
        "tests/fleet/helper.py": "it = 1\n",
        "tests/corpus/x_fuzz/seed": "1\n",
        "tests/gpu/forms.cc": '#include "forms.h"\n',
        "tests/gpu/forms.h": "int forms;\n",
    }

    def setUp(self):
        super().setUp()
        for path, text in self.FILES.items():
            self.plant(path, text)
        self.git("init", "-q")
        self.commit("2026-01-01T00:00:00Z")
        self.add_gtest("A.One", "A.Two", "In/Each.Of/0", "B.One")
        for name in ("c", "d"):
            self.add(f"cases.x/{name}", ["/bin/true", os.path.join(self.root, f"tests/cases/x/{name}.case")])
        self.add("fleet", ["/bin/true", os.path.join(self.root, "tests/fleet/run.py")])
        self.add("fuzz", ["/bin/true", os.path.join(self.root, "tests/corpus/x_fuzz")])
        os.symlink("/bin/true", self.path("check_forms"))
        self.add("forms", [self.path("check_forms")])
        together = "build/release/src/CMakeFiles/m_test.dir/Unity/unity_0_cxx.cxx"
        self.plant(together, f'#include "{self.path("src/m/a_test.cc")}"\n')
        compiled = {"tests/CMakeFiles/check_forms.dir/gpu/forms.cc.o": "tests/gpu/forms.cc",
                    "src/CMakeFiles/m_test.dir/Unity/unity_0_cxx.cxx.o": together}
        self.plant("build/release/compile_commands.json", json.dumps(
            [{"output": output, "file": os.path.join(self.root, source)} for output, source in compiled.items()]))
        self.tests = ctest_suite.load(self.build)

    def git(self, *arguments, **environment):
        command = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=dict(os.environ, **environment)).stdout.strip()

    def commit(self, date):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change", GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date)
        return self.git("rev-parse", "HEAD")

    def touched(self, base="HEAD"):
        found = changed_tests.select(self.root, self.build, self.tests, changed_tests.changes(self.root, base))
        return {test.name for test in found}

    def touched_by(self, path, old, new):
        """The tests that a change of a text touches; the change is taken back."""
        text = self.read(path)
        self.plant(path, text.replace(old, new, 1))
        found = self.touched()
        self.plant(path, text)
        return found

    def test_bodies_of_unit_tests(self):
        path, file = "src/m/a_test.cc", {"m.A.One", "m.A.Two", "m.In/Each.Of/0"}
        self.assertEqual(self.touched_by(path, "one()", "one(1)"), {"m.A.One"})
        self.assertEqual(self.touched_by(path, "  EXPECT_TRUE(one());\n", ""), {"m.A.One"})
        self.assertEqual(self.touched_by(path, '"}"); }', '"}"); } else { less(); }'), {"m.A.Two"})
        self.assertEqual(self.touched_by(path, "Of) {}", "Of) { more(); }"), {"m.In/Each.Of/0"})
        self.assertEqual(self.touched_by(path, "Fixture {}", "Fixture { int a; }"), file)
        self.assertEqual(self.touched_by(path, "struct Fixture {};\n", ""), file)
        self.assertEqual(self.touched_by(path, '#include "m/a.h"\n', '#include "m/b.h"\n\n// why\n'), set())
        self.assertEqual(self.touched_by("src/m/a.cc", "int", "long"), set())

    def test_helpers_of_unit_tests(self):
        for path in ("src/m/other_for_test.h", "src/m/inner_for_test.h", "src/m/inner_for_test.cc"):
            self.assertEqual(self.touched_by(path, "i", "// i"), {"m.B.One"}, path)

    def test_text_cases_and_programs(self):
        self.assertEqual(self.touched_by("tests/cases/x/d.case", "true", "false"), {"cases.x/d"})
        self.assertEqual(self.touched_by("tests/cases/x/beside.py", "helper", "other"), {"cases.x/c"})
        self.assertEqual(self.touched_by("tests/programs/far.py", "()", "(1)"), {"cases.x/c"})
        self.assertEqual(self.touched_by("tests/fleet/run.py", "it", "that"), {"fleet"})
        self.assertEqual(self.touched_by("tests/fleet/helper.py", "1", "2"), {"fleet"})
        self.assertEqual(self.touched_by("tests/kit/job.py", "1", "2"), {"fleet"})
        self.assertEqual(self.touched_by("tests/corpus/x_fuzz/seed", "1", "2"), {"fuzz"})
        self.assertEqual(self.touched_by("tests/gpu/forms.cc", "#", "int a;\n#"), {"forms"})
        self.assertEqual(self.touched_by("tests/gpu/forms.h", "int", "long"), {"forms"})

    def test_a_file_that_git_does_not_know_yet(self):
        self.plant("src/m/c_test.cc", SPDX + "TEST(A, Two) {}\n")
        self.assertEqual(self.touched(), {"m.A.Two"})
        self.assertTrue(self.flaky("--changed", "--base", "HEAD", "--list").endswith("\nm.A.Two  (src/m/c_test.cc)\n"))

    def test_which_base(self):
        first = self.git("rev-parse", "HEAD")
        self.assertEqual(changed_tests.default_base(self.root), first)
        self.plant("tests/cases/x/d.case", "case d\nrun false\n")
        second = self.commit("2026-01-02T00:00:00Z")
        self.plant("tests/fleet/helper.py", "it = 2\n")
        self.commit("2026-01-02T04:00:00Z")
        self.assertEqual(changed_tests.default_base(self.root), first)  # `second` is just not older than four hours
        self.git("update-ref", "refs/remotes/origin/main", second)
        self.assertEqual(changed_tests.default_base(self.root), second)
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.assertEqual(changed_tests.default_base(self.root), first)
        self.assertEqual((self.touched(first), self.touched(second)), ({"cases.x/d", "fleet"}, {"fleet"}))
        self.assertEqual(self.flaky("--changed", "--base", "no-such", status=77),
                         "flaky: no-such: no git history to tell what changed\n")

    def test_runs_at_most_twenty_times(self):
        self.plant("tests/cases/x/d.case", "case d\nrun false\n")
        self.plant("src/m/a_test.cc", self.SOURCE.replace("one()", "one(1)"))
        text = self.flaky("--changed", "--base", "HEAD", "--minutes", "60")
        self.assertIn("short: 2 tests, 20 to 20 runs each", text)
        text = self.flaky("--changed", "--base", "HEAD", "--rounds", "1")  # no minima
        self.assertIn("short: 2 tests, 2 to 2 runs each", text)

    def test_nothing_to_run(self):
        self.assertIn("flaky: nothing to run of the change since ", self.flaky("--changed", "--base", "HEAD"))
        self.add("serial", ["/bin/true", os.path.join(self.root, "tests/programs/far.py")], RUN_SERIAL="TRUE")
        self.plant("tests/programs/far.py", "print(2)\n")
        self.plant("tests/cases/x/c.case", "case c\n")
        self.git("commit", "-q", "-m", "case", "tests/cases/x/c.case")
        self.assertRegex(self.flaky("--changed", "--base", "HEAD"), r"flaky: nothing to run of the change since \w+; serial: serial\n$")


if __name__ == "__main__":
    unittest.main()
