# SPDX-License-Identifier: Apache-2.0
"""A test's outcome. A failure that was seen is a failure, whatever else is missing; a skip names its part and its reason."""
import os
import shutil
import sys
import traceback

from kit.table import Table

PASSED, FAILED, SKIPPED = 0, 1, 77  # exit statuses
SHOWN = 30  # problems of a part


class Impossible(Exception):
    """This machine cannot do it; the text says why."""


class Wrong(RuntimeError):
    """Not as it has to be; the text says how."""


def need(condition, reason):
    if not condition:
        raise Impossible(reason)


def need_root():
    need(os.geteuid() == 0, "needs root")


def need_tool(name, package=""):
    """The path of a program."""
    path = shutil.which(name)
    need(path, f"{name} not found" + (f" (apt-get install {package})" if package else ""))
    return path


def expect(condition, text):
    if not condition:
        raise Wrong(text)


class Report:
    """The parts of a test, each passed, failed or skipped."""

    def __init__(self):
        self.passed, self.failed, self.skipped, self.missing = [], [], [], []

    def part(self, name, do, *arguments, needed=False):
        """Does it. Its problems are those that do() returns (as judge() takes them) or raises; without something that it needs it is
        skipped. `needed`: without this part the whole is no test. Whether it passed."""
        before = Table.seen_wrong
        try:
            problems = do(*arguments)
        except Impossible as reason:
            if Table.seen_wrong == before:
                return self.skip(name, reason, needed)
            problems = [f"rows are wrong; behind them: {reason}"]
        except Wrong as problem:
            problems = [str(problem)]
        except SystemExit as end:
            problems = [f"ended: {end.code}"]
        except Exception:  # allowed: the parts behind it are told of, too
            problems = [traceback.format_exc()]
        return self.judge(name, problems)

    def parts(self, name, plan):
        """As part(), for each (name, do, arguments...) that `plan` yields. What the plan itself lacks or finds wrong is of `name`."""
        try:
            for part, do, *arguments in plan:
                self.part(part, do, *arguments)
        except Impossible as reason:
            self.skip(name, reason)
        except Wrong as problem:
            self.judge(name, [str(problem)])

    def judge(self, name, problems):
        """`problems`: a line each; or how many there are, already printed; or None."""
        for problem in problems[:SHOWN] if isinstance(problems, list) else []:
            print(f"{name}: {problem}", flush=True)
        (self.failed if problems else self.passed).append(name)
        return not problems

    def skip(self, name, reason, needed=False):
        (self.missing if needed else self.skipped).append(name)
        print("skipped: " + ": ".join(filter(None, (name, str(reason)))), flush=True)
        return False

    def status(self):
        """The exit status; says in one line how it came about, unless all passed."""
        for words, names in (("failed", self.failed), ("missing", self.missing), ("skipped", self.skipped)):
            if any(names):
                print(f"{words}: {', '.join(filter(None, names))}", flush=True)
        if self.failed:
            return FAILED
        if self.missing or not self.passed:
            if not self.missing and not self.skipped:
                print("skipped: nothing ran")
            return SKIPPED
        return PASSED


def run(main):
    """Calls main(report) and ends the process by the report. Impossible outside of a part: the whole test needs it. A number that main
    returns is the status of what tests nothing (a list, a table, an evaluation that was stopped)."""
    report, told = Report(), None
    try:
        told = main(report)
    except Impossible as reason:
        report.skip("", reason, needed=True)
    except Wrong as problem:
        report.judge(os.path.basename(sys.argv[0]), [str(problem)])
    sys.exit(told if told is not None and not report.failed else report.status())
