#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that ctest may run in parallel over and over, under load: check_flaky.py [--minutes M] [--changed [--base COMMIT]]

Every test runs in two copies side by side, each with a TMPDIR of its own, as many pairs at once as there are processors, beside two
busy loops: what needs a fixed port, a fixed file or an idle machine fails here. In one round of five every unit test has a process of
its own, as under ctest; in the others many of one program share a process, in random order. Tests that take longer than 10 s take
part in three rounds of ten. Tests with RUN_SERIAL or the lock `live` do not run; those with another RESOURCE_LOCK run one copy after
the other;
what sets up a fixture runs once, before. A test fails that takes longer than its TIMEOUT, or than half a minute and 20 times as long
as it ever took. How long a test takes is its shortest run here, beside the load.

Without --changed the minima are 20 runs a test, and 5 of tests longer than 10 s; fewer is a failure. With --changed only tests that
the change adds or touches run (tools/changed_tests.py says which), 20 times at most, as often as 3 minutes allow.
Exit status: 0 passed, 1 failed tests or too few runs, 2 the tests cannot be told, 77 no git history to tell what changed.
"""
import argparse
import collections
import contextlib
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
import changed_tests  # noqa: E402
import ctest_suite  # noqa: E402
import source_text  # noqa: E402
from ctest_suite import FAILED, PASSED, SKIPPED  # noqa: E402

COPIES = ("A", "B")
RUNS_MIN, RUNS_MIN_LONG = 20, 5
ROUNDS, ROUNDS_LONG = 10, 3  # of so many rounds, tests that take long take part in so many: both minima are reached together
ROUNDS_SINGLE = 5  # one of so many rounds starts a process for each test, which costs more than most tests do
MINUTES, MINUTES_CHANGED = 20.0, 3.0
TOGETHER_TESTS, TOGETHER_TEST_S, TOGETHER_S = 50, 1.0, 5.0  # what shares a process, at most
HUNG_S, HUNG_TIMES = 30.0, 20
GRACE_S = 35.0  # for what still runs at the end; longer than HUNG_S, so that a short test that hangs is found out
OUTPUT_SHOWN, OUTPUTS_SHOWN = 8000, 20  # characters of a failure, and failures of a test that are shown with their output
PROGRESS_S, PROGRESS_TERMINAL_S = 30.0, 5.0
NAMES_SHOWN, NAMES_SHOWN_MISSING = 5, 100
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1000000):\n        pass\n"


class Record:
    """What is known of one test."""

    def __init__(self, test):
        self.test, self.key = test, test.process_key()
        self.runs = self.failed = self.failed_together = self.skipped = 0
        self.shortest, self.longest, self.begun = math.inf, 0.0, None

    def takes_long(self, long_s):
        if not self.runs and self.begun:
            return time.monotonic() > self.begun + long_s  # it runs for the first time
        return math.inf > self.shortest > long_s

    def always_skipped(self):
        return self.skipped > 1 and not self.runs

    def count(self, state, seconds, together):
        if state == SKIPPED:
            self.skipped += 1
            return
        self.runs += 1
        if state == FAILED:
            self.failed += 1
            self.failed_together += together
        else:
            self.shortest, self.longest = min(self.shortest, seconds), max(self.longest, seconds)


class Unit:
    """What one process runs: a test, or several of one program in the order that follows from `seed`."""

    def __init__(self, records, seed=None):
        self.records, self.seed = records, seed
        self.test = records[0].test
        self.expected_s = sum(record.longest for record in records)

    def command(self):
        if self.seed is None:
            return self.test.command
        return ctest_suite.command_together([record.test for record in self.records], self.seed)

    def limit_s(self):
        hung_s = HUNG_S + HUNG_TIMES * self.expected_s
        return hung_s if self.seed is not None else min(hung_s if self.expected_s else math.inf, self.test.timeout_s)

    def size(self):
        """By which a round is ordered; similar ones have the same. What never ran is as long as its time limit lets guess."""
        guess = 0.0 if self.test.timeout_s == ctest_suite.DEFAULT_TIMEOUT_S else self.test.timeout_s / 10
        return int(math.log2(max(self.expected_s or guess, 1.0)))

    def name(self):
        if self.seed is None:
            return self.test.name
        return f"{os.path.basename(self.test.command[0])} ({len(self.records)} tests in one process)"

    def results(self, status, seconds, output):
        """(test, state, seconds, reason, output) of each test; test is None for a failure that no test had."""
        if self.seed is not None:
            return ctest_suite.judge_together([record.test for record in self.records], status, output)
        state, reason = self.test.judge(status, output)
        return [(self.test, state, seconds, reason, output)]


class Once:
    """A plan of tests that run alone, one after the other."""

    def __init__(self, records):
        self.queue, self.begun = [Unit([record]) for record in records], 0

    def take(self, running, _seconds_left):
        """The next unit, and whether none is left."""
        return (self.queue.pop(0) if self.queue and not running else None), not self.queue


class Rounds:
    """Which units run, round by round. The same seed gives the same rounds, but for what depends on how long tests take."""

    def __init__(self, records, options):
        self.records, self.options = records, options
        self.number, self.begun, self.queue = 0, 0, []
        self.pairs = collections.Counter()  # rounds that a test took part in

    def due(self, record):
        """Whether a test takes part in the round that begins."""
        if record.always_skipped():
            return False
        if self.options.changed:
            return self.pairs[record] * len(COPIES) < RUNS_MIN
        return not record.takes_long(self.options.long) or self.pairs[record] * ROUNDS <= (self.number - 1) * ROUNDS_LONG

    @staticmethod
    def together(records, chance):
        """Units of tests that share processes."""
        by_key = collections.defaultdict(list)
        for record in records:
            by_key[record.key].append(record)
        for group in by_key.values():
            chance.shuffle(group)
            while group:
                part, seconds = [], 0.0
                while group and len(part) < TOGETHER_TESTS and seconds < TOGETHER_S:
                    part.append(group.pop())
                    seconds += part[-1].longest
                yield Unit(part, chance.randrange(1, 100000))

    def next_round(self):
        """Adds the units of a round behind what is left of the one before."""
        self.number += 1
        chance = random.Random(f"{self.options.seed} {self.number}")
        due = [record for record in self.records if self.due(record)]
        self.pairs.update(due)
        single = self.number % ROUNDS_SINGLE == 1
        sharing = {record for record in due if not single and record.key and record.shortest < TOGETHER_TEST_S}
        units = list(self.together([record for record in due if record in sharing], chance))
        units += [Unit([record]) for record in due if record not in sharing]
        chance.shuffle(units)
        # Long ones first end together; in the few minutes for a change they would leave the many short ones no time.
        self.queue += sorted(units, key=Unit.size, reverse=not self.options.changed)

    def may_run(self, unit, running):
        weight = sum(min(other.test.processors, self.options.jobs) for other in running)
        if running and weight + min(unit.test.processors, self.options.jobs) > self.options.jobs:
            return False
        records = set(unit.records)
        return not any(unit.test.locks & other.test.locks or not records.isdisjoint(other.records) for other in running)

    def take(self, running, seconds_left):
        """The next unit that may run beside `running`, if there is one, and whether none is left at all."""
        for rounds in range(ROUNDS + 1):  # a round can be empty: all tests of it take long, or too long for the time left
            if rounds:
                self.next_round()
            self.queue = [unit for unit in self.queue if unit.expected_s < seconds_left]
            for index, unit in enumerate(self.queue):
                if self.may_run(unit, running):
                    return self.begin(index), False
            # What is left can wait for something that runs, most often for itself; the other workers need not.
            if len(self.queue) >= self.options.jobs or seconds_left <= 0 or 0 < self.options.rounds <= self.number:
                break
        return None, not self.queue

    def begin(self, index):
        self.begun = self.number
        unit = self.queue.pop(index)
        for record in unit.records:
            record.begun = time.monotonic()
        return unit


class Tally:
    """Counts what runs give, and prints failures as they come."""

    def __init__(self, tests):
        self.records = {test: Record(test) for test in tests}
        self.others = collections.Counter()  # failures of processes, while no test in them failed
        self.failures, self.lock = 0, threading.Lock()

    def note(self, unit, copy, result):
        test, state, seconds, reason, output = result
        with self.lock:
            record = self.records.get(test)
            if record:
                record.count(state, seconds, unit.seed is not None)
            else:
                self.others[unit.name()] += 1
            if state != FAILED:
                return
            self.failures += 1
            print(f"FAILED {test.name if test else unit.name()} (copy {copy}, {seconds:.2f} s): {reason}")
            if (record.failed if record else self.others[unit.name()]) <= OUTPUTS_SHOWN:
                print("   again: " + ctest_suite.shell_line(unit.command(), unit.test.folder, unit.test.environment))
                print("\n".join("   | " + line for line in shortened(output).splitlines()))
            sys.stdout.flush()

    def runs(self):
        return sum(record.runs for record in self.records.values())


def shortened(text):
    if len(text) <= OUTPUT_SHOWN:
        return text
    half = OUTPUT_SHOWN // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters ...\n{text[-half:]}"


class Runner:
    """Runs the units of a plan on threads, one pair of copies each; ends what is late."""

    def __init__(self, tally, options):
        self.tally, self.options = tally, options
        self.plan, self.copies, self.until = None, COPIES, math.inf
        self.changed = threading.Condition()
        self.running, self.live = set(), {}  # units, and their processes with the times when they are late
        self.late, self.cut, self.started = set(), {}, 0  # processes ended because late, and those ended because all ended
        self.stopped = None  # why nothing runs any more
        self.signals = []
        self.place = tempfile.mkdtemp(prefix="kansoku-flaky-")
        os.chmod(self.place, 0o755)  # tests start programs as other users

    def take(self):
        """The next unit, waiting for one that may run; None at the end."""
        with self.changed:
            while self.stopped is None:
                unit, none_left = self.plan.take(self.running, self.until - time.monotonic())
                if unit:
                    self.running.add(unit)
                    return unit
                if none_left:
                    return None
                self.changed.wait()
        return None

    def start(self, unit, copy):
        """A started process, or None."""
        with self.changed:
            if self.stopped is not None:
                return None
            self.started += 1
            try:
                if not unit.test.command:
                    raise FileNotFoundError("it is not built")
                process = ctest_suite.Process(unit.command(), unit.test, os.path.join(self.place, str(self.started)))
            except OSError as error:
                self.tally.note(unit, copy, (unit.test, FAILED, 0.0, f"cannot be started: {error}", ""))
                return None
            self.live[process] = process.begin + unit.limit_s()
        return process

    def run_copies(self, unit, copies):
        started = {copy: process for copy in copies if (process := self.start(unit, copy))}
        ctest_suite.wait_all(started.values())
        for copy, process in started.items():
            status, output = process.collect()
            with self.changed:
                del self.live[process]
                if process in self.cut:
                    self.cut[process] = f"{unit.name()} ({process.seconds:.0f} s)"
                    continue
            for test, state, seconds, reason, text in unit.results(status, process.seconds, output):
                if process in self.late and (state == FAILED or unit.seed is None):
                    state, seconds, reason = FAILED, process.seconds, f"not ended in {unit.limit_s():.0f} s"
                self.tally.note(unit, copy, (test, state, seconds, reason, text))

    def work(self):
        while unit := self.take():
            for copies in [(copy,) for copy in self.copies] if unit.test.locks else [self.copies]:
                self.run_copies(unit, copies)
            with self.changed:
                self.running.discard(unit)
                self.changed.notify_all()

    def stop(self, why):
        """Nothing new starts; what runs is ended and does not count."""
        with self.changed:
            self.stopped = why
            self.cut.update((process, "") for process in self.live if process not in self.late)
            for process in self.live:
                process.kill()
            self.changed.notify_all()

    def look(self):
        """Ends what is late, and everything after a signal or long after the end of the time."""
        now = time.monotonic()
        with self.changed:
            for process, limit in self.live.items():
                if now > limit and process not in self.late | self.cut.keys():
                    self.late.add(process)
                    process.kill()
        if self.stopped is None and self.signals:
            self.stop(f"stopped by {signal.Signals(self.signals[0]).name}")
        elif self.stopped is None and now > self.until + GRACE_S:
            self.stop("")

    def progress(self, begin):
        with self.changed:
            names = sorted(unit.name() for unit in self.running)
        with self.tally.lock:
            print(f"flaky: {time.monotonic() - begin:.0f} s of {self.until - begin:.0f}, round {self.plan.begun}, "
                  f"{self.tally.runs()} runs, {self.tally.failures} failed; now {some(names)}", flush=True)

    def run(self, plan, copies, jobs, seconds):
        """Until the plan or the time is at its end, or a signal comes."""
        begin = told = time.monotonic()
        every = PROGRESS_TERMINAL_S if sys.stdout.isatty() else PROGRESS_S
        self.plan, self.copies, self.until, self.stopped = plan, copies, begin + seconds, self.stopped or None
        threads = [threading.Thread(target=self.work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(0.1)
            self.look()
            if time.monotonic() > told + every:
                told = time.monotonic()
                self.progress(begin)

    @contextlib.contextmanager
    def surroundings(self):
        """Busy loops, and signals that are taken note of; in the end nothing is left."""
        handlers = {number: signal.signal(number, lambda number, _: self.signals.append(number))
                    for number in (signal.SIGINT, signal.SIGTERM)}
        busy = [subprocess.Popen([sys.executable, "-S", "-c", BUSY], start_new_session=True) for _ in range(self.options.busy)]
        try:
            yield
        finally:
            for process in busy:
                process.kill()
                process.wait()
            shutil.rmtree(self.place, ignore_errors=True)
            for number, handler in handlers.items():
                signal.signal(number, handler)


class Choice:
    """Which tests run, and why the others do not."""

    def __init__(self, options):
        self.tests = ctest_suite.load(options.build)
        wanted = [test for test in self.tests if options.only in test.name]
        self.reasons, self.base = dict.fromkeys(wanted, ""), None
        if options.changed:
            self.choose_changed(options, wanted)
        chosen = [test for test in self.tests if test in self.reasons and not test.disabled]
        self.serial = [test for test in chosen if test.serial]
        self.repeated = [test for test in chosen if not (test.serial or test.sets_up or test.cleans_up)]
        required = set().union(*(test.requires for test in self.repeated))
        self.set_up = [test for test in self.tests if test.sets_up & required]
        self.clean_up = [test for test in self.tests if test.cleans_up & required]

    def choose_changed(self, options, wanted):
        self.base = options.base or changed_tests.default_base(options.root)
        changed = changed_tests.changes(options.root, self.base) if self.base else None
        if changed is None:
            raise LookupError(f"{self.base or 'HEAD'}: no git history to tell what changed")
        self.reasons = changed_tests.select(options.root, options.build, wanted, changed)
        fixtures = {fixture: reason for test, reason in self.reasons.items() for fixture in test.sets_up}
        for test in wanted:
            for fixture in test.requires & fixtures.keys():
                self.reasons.setdefault(test, fixtures[fixture])

    def print(self):
        for test in self.repeated:
            print(test.name + (f"  ({self.reasons[test]})" if self.reasons[test] else ""))


def some(names, count=NAMES_SHOWN):
    """The first of many names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")


def print_counts(what, records, with_times=False):
    """How often the tests of one kind ran, and which of them least."""
    if not records:
        return
    records = sorted(records, key=lambda record: (record.runs, -record.longest))
    told = (f"{record.test.name} {record.runs}" + (f" ({record.shortest:.0f} to {record.longest:.0f} s)" if with_times else "")
            for record in records)
    print(f"   {what}: {len(records)} tests, {records[0].runs} to {records[-1].runs} runs each; fewest: {some(told)}")


def missing_runs(records, seconds, options):
    """What ran too rarely, as problems: a line for all tests that ran equally often."""
    if options.changed:
        return
    short = collections.defaultdict(list)
    for record in sorted(records, key=lambda record: record.runs):
        least = RUNS_MIN_LONG if record.takes_long(options.long) else RUNS_MIN
        if record.runs < least:
            short[record.runs, least].append(record.test.name)
    for (runs, least), names in short.items():
        yield f"ran {runs} times, at least {least} are wanted: {some(names, NAMES_SHOWN_MISSING)}"
    if short and min(short)[0]:
        print(f"   for the runs that are wanted it takes about {max(least / runs for runs, least in short) * seconds / 60:.0f} minutes here")


def failed_tests(tally):
    """A line for each test that failed, with how often."""
    for record in sorted(tally.records.values(), key=lambda record: -record.failed):
        if record.failed:
            together = f", {record.failed_together} of them in one process with others" if record.failed_together else ""
            yield f"{record.test.name}: failed/ran {record.failed}/{record.runs}{together}"
    for name, count in tally.others.items():
        yield f"{name}: failed {count} times, no test of it"


def summary(choice, runner, seconds, options):
    """Prints what ran how often; the exit status."""
    records = [runner.tally.records[test] for test in choice.repeated]
    skipped = [record for record in records if record.always_skipped()]
    ran = [record for record in records if not record.always_skipped()]
    print(f"flaky: {runner.plan.begun} rounds in {seconds:.0f} s, {runner.tally.runs()} runs, seed {options.seed}")
    print_counts("short", [record for record in ran if not record.takes_long(options.long)])
    print_counts(f"longer than {options.long:g} s", [record for record in ran if record.takes_long(options.long)], True)
    for what, names in (("skipped in every run", [record.test.name for record in skipped]),
                        ("serial, not run", [test.name for test in choice.serial]),
                        ("still running at the end, not counted", [text for text in runner.cut.values() if text])):
        if names:
            print(f"   {what}: {len(names)}: {some(names)}")
    problems = [*failed_tests(runner.tally), *missing_runs(ran, seconds, options)] + ([runner.stopped] if runner.stopped else [])
    return source_text.report("flaky", problems, f"{len(ran)} tests, {sum(record.runs for record in ran)} runs, none failed")


def run(choice, options):
    tally = Tally(choice.repeated + choice.set_up + choice.clean_up)
    runner = Runner(tally, options)
    with runner.surroundings():
        runner.run(Once([tally.records[test] for test in choice.set_up]), COPIES[:1], 1, math.inf)
        broken = set().union(*(test.sets_up for test in choice.set_up if tally.records[test].failed))
        begin = time.monotonic()
        plan = Rounds([tally.records[test] for test in choice.repeated if not test.requires & broken], options)
        runner.run(plan, COPIES, options.jobs, 60 * options.minutes)
        seconds = time.monotonic() - begin
        runner.run(Once([tally.records[test] for test in choice.clean_up]), COPIES[:1], 1, math.inf)
        runner.plan = plan
    return summary(choice, runner, seconds, options)


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree whose changes count [this one]")
    parser.add_argument("--build", help="build folder with the tests [build/release]")
    parser.add_argument("--minutes", type=float, help=f"time to run [{MINUTES:g}; with --changed {MINUTES_CHANGED:g}]")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="pairs at once [%(default)s]")
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside them [%(default)s]")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 100000), help="for the order [another each time]")
    parser.add_argument("--rounds", type=int, default=0, help="stop after so many, before the time is over [0: do not]")
    parser.add_argument("--long", type=float, default=10.0, help="seconds from which on a test takes long [%(default)g]")
    parser.add_argument("--only", default="", help="tests whose name holds this text")
    parser.add_argument("--changed", action="store_true", help="tests that a change adds or touches")
    parser.add_argument("--base", help="the commit before the change [the merge base with origin/main, or four hours ago]")
    parser.add_argument("--list", action="store_true", help="print which tests would run, and with --changed why")
    options = parser.parse_args(words)
    if options.base and not options.changed:
        parser.error("--base belongs to --changed")
    options.root = os.path.abspath(options.root)
    options.build = os.path.abspath(options.build or os.path.join(options.root, "build/release"))
    options.minutes = options.minutes if options.minutes is not None else MINUTES_CHANGED if options.changed else MINUTES
    options.jobs = max(options.jobs, 1)
    return options


def main():
    options = arguments()
    try:
        choice = Choice(options)
    except ctest_suite.SuiteError as error:
        print(f"flaky: {error}")
        return 2
    except LookupError as error:
        print(f"flaky: {error}")
        return source_text.SKIP_EXIT
    since = f" of the change since {choice.base[:12]}" if choice.base else ""
    print(f"flaky: {len(choice.repeated)} tests{since} in {len(COPIES)} copies, {options.jobs} pairs at once, {options.busy} busy loops, "
          f"{options.minutes:g} minutes, seed {options.seed}", flush=True)
    if options.list:
        choice.print()
        return 0
    if not choice.repeated:
        names = [test.name for test in choice.serial]
        return source_text.report("flaky", [], f"nothing to run{since}" + (f"; serial: {some(names)}" if names else ""))
    return run(choice, options)


if __name__ == "__main__":
    sys.exit(main())
