# SPDX-License-Identifier: Apache-2.0
"""Evaluations that run for hours in parts: each result is kept as soon as its part has ended, and the same command goes on."""
import collections
import hashlib
import json
import os
import signal
import subprocess
import time

from kit.kansoku import ROOT
from kit.outcome import Impossible, Wrong


def commit_of_tree():
    """The commit, with a hash of what differs from it: results of another tree are not taken for this one's."""
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False).stdout
    changed = git("diff", "HEAD")
    return (git("rev-parse", "--short=12", "HEAD").strip() or "none") + ("+" + hashlib.sha1(changed.encode()).hexdigest()[:6] if changed else "")


def read_lines(path):
    """One JSON value a line, as far as lines are whole; none if there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


# `key`: plain values that name it; `do`: gives its result, a dict, or raises Impossible; `facts`: kept with the result.
Part = collections.namedtuple("Part", "key title do facts", defaults=({},))


class Parts:
    """The results of a suite, one JSON line a part, in `path` [FOLDER/COMMIT.jsonl]. `commit`: whatever else they depend on."""

    def __init__(self, folder, path=None, commit=None):
        self.commit = commit or commit_of_tree()
        self.path = path or os.path.join(folder, self.commit + ".jsonl")
        self.all = read_lines(self.path)  # of other commits, too

    @property
    def results(self):
        return [result for result in self.all if result["commit"] == self.commit]

    def result(self, key):
        """The last one of a part; None if it has not been run."""
        return next((one for one in reversed(self.results) if one["key"] == list(key) and "not_run" not in one), None)

    def add(self, result):
        self.all.append(json.loads(json.dumps({**result, "commit": self.commit})))
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(self.all[-1]) + "\n")

    def run(self, plan, report, shown=lambda result: "done", minutes=None, again=False):
        """Runs what has no result (`again`: all), and begins none after so many minutes. `shown`: a result in words. `report` counts what
        has a result and names what could not be run; what is Wrong is run again, too, and fails. Whether the end of the plan was reached."""
        begin = time.monotonic()
        for part in plan:
            if again or not self.result(part.key):
                if minutes is not None and time.monotonic() - begin > 60 * minutes:
                    print(f"{minutes:g} minutes are over; the same command goes on")
                    return False
                print(f"{part.title} ... ", end="", flush=True)
                names = report.skipped
                try:
                    result = part.do()
                except (Impossible, Wrong) as reason:
                    names = report.failed if isinstance(reason, Wrong) else names
                    result = {"not_run": " | ".join(str(reason).splitlines())}
                print(f"not run: {result['not_run']}" if "not_run" in result else shown(result), flush=True)
                self.add({"key": part.key, **part.facts, **result})
                if "not_run" in result:
                    names.append(part.title)
                    continue
            report.passed.append(part.title)
        return True

    def run_tables(self, plan, report, again=False):
        """Parts whose results are tables (kit.Table): prints those that are there already, too. A row that is wrong fails its part."""
        for part in plan:
            if not again and (kept := self.result(part.key)):
                print(kept["text"])
                report.judge(part.title, kept["wrong"])
            else:
                report.part(part.title, self._add_table, part)

    def _add_table(self, part):
        result = part.do().result()
        self.add({"key": part.key, **part.facts, **result})
        return result["wrong"]


def _interrupt_once(_number, _frame):
    """A second Ctrl-C does not stop the removal of what the run has made."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def run_until_stopped(run):
    """Calls `run`; False if Ctrl-C or TERM ended it."""
    signal.signal(signal.SIGINT, _interrupt_once)
    signal.signal(signal.SIGTERM, _interrupt_once)
    try:
        run()
    except KeyboardInterrupt:
        print("stopped; what is finished is kept")
        return False
    return True
