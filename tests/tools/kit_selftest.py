#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The kit of the test scripts: a failure that was seen is never a skip, a skip has its name, parts go on, jobs and recorders end."""
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

FAIL, SKIP, PASS = 'report.judge("a", ["is 2"])', 'report.skip("b", "no root")', 'report.judge("c", [])'
MISSING = 'report.part("d", kit.need, False, "no disk", needed=True)'


class Status(unittest.TestCase):
    """The exit status and output of scripts."""

    def script(self, status, *lines):
        text = f"import sys\nsys.path.insert(0, {sys.path[0]!r})\nimport kit\ndef main(report):\n" + textwrap.indent("\n".join(lines), "    ")
        done = subprocess.run([sys.executable, "-c", text + "\nkit.run(main)\n"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, status, f"{lines}: {done.stdout}")
        return done.stdout

    def test_a_failure_is_one_whatever_else_is_missing(self):
        for others in ((), (SKIP,), (MISSING,), (PASS,), (SKIP, MISSING, PASS), ('kit.need(False, "no network")',)):
            self.assertIn("a: is 2", self.script(1, FAIL, *others))
            if "need(False, \"no net" not in str(others):
                self.script(1, *others, FAIL)

    def test_a_skip_has_its_name(self):
        said = self.script(0, PASS, SKIP)
        self.assertIn("skipped: b: no root", said)
        self.assertIn("skipped: b\n", said)

    def test_nothing_that_ran_is_a_skip(self):
        self.assertIn("skipped: b: no root", self.script(77, SKIP))
        self.assertIn("nothing ran", self.script(77, "pass"))

    def test_without_a_needed_part_the_whole_is_skipped(self):
        self.assertIn("skipped: d: no disk", self.script(77, PASS, MISSING))
        self.assertIn("skipped: needs root: why", self.script(77, PASS, 'raise kit.Impossible("needs root: why")'))

    def test_a_part_that_raises_has_failed_and_the_next_one_runs(self):
        for cause in ('raise kit.Wrong("lost")', "raise ValueError('lost')", "sys.exit('lost')", "return ['lost']", "return 2"):
            said = self.script(1, f"def part():\n    {cause}", 'report.part("e", part)', SKIP, 'report.part("f", print, "reached")')
            self.assertIn("reached", said)
            self.assertIn("failed: e", said)
        self.script(1, 'raise kit.Wrong("lost")')

    def test_a_part_with_a_wrong_row_has_failed_whatever_it_lacks_behind_it(self):
        rows = 'def part():\n    kit.Table("", "x").row(1, right={})\n    kit.need(False, "no device")'
        self.assertIn("rows are wrong; behind them: no device", self.script(1, rows.format(False), 'report.part("g", part)'))
        self.assertIn("skipped: g: no device", self.script(77, rows.format(True), 'report.part("g", part)'))

    def test_a_number_is_the_status_of_what_tests_nothing(self):
        self.script(2, "return 2")
        self.script(1, FAIL, "return 0")


class Going(unittest.TestCase):
    """Parts that are stopped and go on."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.ran = folder.name, []

    def plan(self, *numbers):
        return [kit.Part(["n", number], f"part {number}", lambda number=number: self.do(number)) for number in numbers]

    def do(self, number):
        self.ran.append(number)
        kit.need(number != 13, "an unlucky number")
        kit.expect(number != 14, "no number")
        return {"square": number * number}

    def run_parts(self, commit, *numbers, **more):
        report = kit.Report()
        parts = kit.Parts(self.folder, commit=commit)
        return parts.run(self.plan(*numbers), report, **more), parts, report

    def test_what_has_a_result_of_this_commit_is_not_run_again(self):
        self.run_parts("one", 1, 2)
        _, parts, report = self.run_parts("one", 1, 2, 3)
        self.assertEqual(self.ran, [1, 2, 3])
        self.assertEqual([result["square"] for result in parts.results], [1, 4, 9])
        self.assertEqual(len(report.passed), 3)
        self.run_parts("two", 1)
        self.run_parts("one", 2, again=True)
        self.assertEqual(self.ran, [1, 2, 3, 1, 2])
        self.assertEqual(sorted(os.listdir(self.folder)), ["one.jsonl", "two.jsonl"])

    def test_one_file_keeps_commits_apart(self):
        path = os.path.join(self.folder, "all.jsonl")
        for commit in ("one", "two"):
            kit.Parts(self.folder, path, commit).run(self.plan(5), kit.Report())
        parts = kit.Parts(self.folder, path, "two")
        self.assertEqual((self.ran, len(parts.all), len(parts.results)), ([5, 5], 2, 1))

    def test_what_could_not_be_run_is_tried_again_and_named(self):
        for _ in range(2):
            _, parts, report = self.run_parts("one", 13)
            self.assertIsNone(parts.result(["n", 13]))
            self.assertEqual((report.skipped, report.status()), (["part 13"], 77))
        self.assertEqual(self.ran, [13, 13])

    def test_what_is_wrong_is_tried_again_and_fails_whatever_could_not_be_run(self):
        for _ in range(2):
            _, parts, report = self.run_parts("one", 14, 13, 1)
            self.assertEqual((report.failed, report.skipped, report.status()), (["part 14"], ["part 13"], 1))
        self.assertEqual(self.ran, [14, 13, 1, 14, 13])

    def test_no_part_begins_after_its_time_and_a_broken_line_is_none(self):
        self.assertFalse(self.run_parts("one", 1, 2, minutes=-1)[0])
        self.assertEqual(self.ran, [])
        self.assertTrue(self.run_parts("one", 1)[0])
        with open(os.path.join(self.folder, "one.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"key": ["n", 2], "squ')
        self.assertIsNone(kit.Parts(self.folder, commit="one").result(["n", 2]))

    def test_a_kept_table_with_a_wrong_row_fails_again(self):
        def do():
            self.ran.append("table")
            table = kit.Table("Squares", "number", "square")
            table.row(2, 5, right=False)
            return table
        for _ in range(2):
            report = kit.Report()
            kit.Parts(self.folder, commit="one").run_tables([kit.Part(["t"], "table", do)], report)
            self.assertEqual(report.status(), 1)
        self.assertEqual(self.ran, ["table"])


class Jobs(unittest.TestCase):
    def test_it_ends_with_its_block_whatever_it_does(self):
        stubborn = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); sys.stdin.read()"
        with kit.Job([sys.executable, "-c", stubborn], "SIGTERM", 0.1, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
            job.stdout.readline()
        self.assertEqual(job.returncode, -9)

    def test_a_state_is_waited_for_and_a_job_that_ends_before_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder, kit.Job(["touch", os.path.join(folder, "there")]) as job:
            kit.wait_for(lambda: os.listdir(folder), "a file")
            with self.assertRaisesRegex(kit.Wrong, "another file: it ended before, with status 0"):
                job.wait_for(lambda: os.path.exists("/nowhere"), "another file")
        with self.assertRaisesRegex(kit.Wrong, "nothing: not within 0.1 s"):
            kit.wait_for(lambda: None, "nothing", 0.1)

    def test_a_recorder_is_attached_in_its_block_and_whole_behind_it(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "kansoku")
            with open(program, "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/python3\nimport signal, sys\n"
                           "open('words', 'w').write(' '.join(sys.argv[1:]))\n"
                           "signal.signal(signal.SIGINT, lambda *_: (open('trace', 'w').close(), sys.exit()))\n"
                           "print('recording into trace', file=sys.stderr, flush=True)\nsignal.pause()\n")
            os.chmod(program, 0o700)
            with kit.Recorder(program, "trace", "--force", pids=[7], cwd=folder):
                with open(os.path.join(folder, "words"), encoding="utf-8") as file:
                    self.assertEqual(file.read(), "record --force -o trace -p 7")
            self.assertTrue(os.path.exists(os.path.join(folder, "trace")))
            with self.assertRaisesRegex(kit.Wrong, "status 1"), kit.Recorder("false", "trace", pids=[]):
                pass


class Truths(unittest.TestCase):
    def test_every_difference_is_told(self):
        self.assertEqual(kit.differences({"a": 1}, {"a": 1}), [])
        self.assertEqual(kit.differences({"a": 2, "b": 1}, {"a": 1, "c": 1}), ["a: 2 seen, 1 run", "b: 1 seen, 0 run", "c: 0 seen, 1 run"])

    def test_two_writers_are_no_truth(self):
        with tempfile.TemporaryDirectory() as folder:
            begin = os.path.join(folder, "counts")
            for pid in (1, 2):
                with open(f"{begin}.{pid}", "w", encoding="utf-8") as file:
                    file.write("call cuInit 1 1\nunrun kernel a 2\n")
            self.assertRaisesRegex(kit.Wrong, "2 processes", kit.the_file, begin)
            self.assertEqual(kit.read_counts(begin + ".1"), {"call": {"cuInit": [1, 1]}, "unrun": {"kernel a": [2]}})
            kit.remove_files(begin)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
