# SPDX-License-Identifier: Apache-2.0
"""The tests of a build folder as ctest lists them, how one is started and ended, and what a finished run means."""
import collections
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time

DEFAULT_TIMEOUT_S = 1500.0  # ctest's own
OUTPUT_BYTES_READ = 16 << 20
LIVE_LOCK = "live"  # of tests that look at programs while they run: beside nobody's copies
UNIT_RUNNER = "run_unit.py"  # runs all tests of a program; each counts by itself here
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# Properties that change how a test runs and that nobody here needs: better refused than overlooked.
UNKNOWN = ("ENVIRONMENT_MODIFICATION", "RESOURCE_GROUPS", "REQUIRED_FILES", "TIMEOUT_AFTER_MATCH")
GTEST_FILTER = "--gtest_filter="
GTEST_BEGIN = re.compile(r"\[ RUN      \] (\S+)$", re.MULTILINE)
GTEST_END = re.compile(r"\[(       OK |  FAILED  |  SKIPPED )\] ([^\s,]+)(?:, where .*?)? \((\d+) ms\)$", re.MULTILINE)
GTEST_SKIPPED = r"\[  SKIPPED \]"
GTEST_STATES = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}


class SuiteError(Exception):
    """The tests of a build folder cannot be told, with the reason."""


class Test:
    """One test: what it runs, and how ctest judges it. `gtest` is the name that GoogleTest has for it, if it is one of its tests."""

    def __init__(self, entry, shares=False):
        values = {item["name"]: item["value"] for item in entry.get("properties", [])}
        for name in UNKNOWN:
            if name in values:
                raise SuiteError(f"test {entry['name']} has the property {name}, which is not understood here")
        self.name, self.command = entry["name"], entry.get("command", [])
        self.folder = values.get("WORKING_DIRECTORY", ".")
        self.environment = dict(item.split("=", 1) for item in values.get("ENVIRONMENT", []))
        self.timeout_s = values.get("TIMEOUT") or DEFAULT_TIMEOUT_S
        self.processors, self.locks = int(values.get("PROCESSORS", 1)), frozenset(values.get("RESOURCE_LOCK", []))
        self.serial, self.disabled = bool(values.get("RUN_SERIAL")) or LIVE_LOCK in self.locks, bool(values.get("DISABLED"))
        self.sets_up, self.cleans_up = set(values.get("FIXTURES_SETUP", [])), set(values.get("FIXTURES_CLEANUP", []))
        self.requires = set(values.get("FIXTURES_REQUIRED", []))
        self.skip_status, self.will_fail = values.get("SKIP_RETURN_CODE"), bool(values.get("WILL_FAIL"))
        self.pass_texts, self.fail_texts, self.skip_texts = (
            values.get(f"{word}_REGULAR_EXPRESSION", []) for word in ("PASS", "FAIL", "SKIP"))
        filters = [part[len(GTEST_FILTER):] for part in self.command if part.startswith(GTEST_FILTER)]
        self.gtest = filters[0] if len(filters) == 1 and not re.search(r"[*?:]", filters[0]) else None
        self.shares = shares  # ctest runs it in one process with others of its program

    def process_key(self):
        """Tests with the same key can run in one process; None where a test needs one of its own."""
        if not self.shares or not self.gtest or self.pass_texts or self.fail_texts or self.will_fail or self.locks or self.processors > 1:
            return None
        rest = tuple(part for part in self.command if not part.startswith(GTEST_FILTER))
        return rest, self.folder, tuple(sorted(self.environment.items()))

    def judge(self, status, output):
        """State and reason of a run that ended by itself, in the order in which ctest asks."""
        if self.skip_status is not None and status == self.skip_status:
            return SKIPPED, f"exit status {status}"
        if any(re.search(text, output, re.MULTILINE) for text in self.skip_texts):
            return SKIPPED, "its output says so"
        for text in self.fail_texts:
            if re.search(text, output, re.MULTILINE):
                return FAILED, f"its output has what it must not have: {text}"
        if status < 0:
            return FAILED, f"ended by signal {-status}"
        if self.pass_texts:
            good = any(re.search(text, output, re.MULTILINE) for text in self.pass_texts)
            reason = "its output has not what it must have: " + " | ".join(self.pass_texts)
        else:
            good, reason = status == 0, f"exit status {status}"
        return (PASSED, "") if good != self.will_fail else (FAILED, reason)


def command_together(tests, seed):
    """The command that runs GoogleTest tests of one key in one process, in the order that follows from `seed`."""
    (program, *rest), _, _ = tests[0].process_key()
    return [program, GTEST_FILTER + ":".join(test.gtest for test in tests), *rest, "--gtest_shuffle", f"--gtest_random_seed={seed}"]


def judge_together(tests, status, output):
    """(test, state, seconds, reason, output of its own) of every test that the process began; test is None if it was none of them."""
    ends = {}
    for match in GTEST_END.finditer(output):
        ends.setdefault(match.group(2), match)
    results = []
    begun = {match.group(1): match for match in reversed(list(GTEST_BEGIN.finditer(output)))}
    for test in tests:
        begin, end = begun.get(test.gtest), ends.get(test.gtest)
        if begin and end:
            state = GTEST_STATES[end.group(1).strip()]
            reason = "an expectation failed" if state == FAILED else ""
            results.append((test, state, int(end.group(3)) / 1000, reason, output[begin.start():end.end()]))
        elif begin:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            results.append((test, FAILED, 0.0, f"the process ended in it: {how}", output[begin.start():]))
    if status != 0 and all(state != FAILED for _, state, *_ in results):
        results.append((None, FAILED, 0.0, f"no test failed, but the process: {status}", output))
    return results


def descendants(pid):
    """Processes below `pid`: some lead groups of their own, which the end of its group would spare."""
    children = collections.defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                children[int(file.read().rpartition(")")[2].split()[1])].append(int(name))
        except OSError:
            pass  # ended meanwhile
    found, waiting = [], [pid]
    while waiting:
        below = children[waiting.pop()]
        found += below
        waiting += below
    return found


def end(function, pid):
    try:
        function(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


class Process:
    """A started command of a test, in a process group of its own, with the new folder `place` as its TMPDIR."""

    def __init__(self, command, test, place):
        self.place = place
        os.mkdir(place)
        os.chmod(place, 0o1777)  # as /tmp has it
        environment = dict(os.environ, TMPDIR=place, **test.environment)
        self.begin, self.seconds = time.monotonic(), 0.0
        with open(place + ".out", "wb") as output:
            self.process = subprocess.Popen(command, cwd=test.folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        self.handle = os.pidfd_open(self.process.pid)

    def kill(self):
        """Ends it with all that it has started and that still hangs on it."""
        if self.process.returncode is None:
            for pid in descendants(self.process.pid):
                end(os.kill, pid)
        end(os.killpg, self.process.pid)

    def collect(self):
        """(exit status, output) of an ended process. What it has left running in its group ends with it."""
        status = self.process.wait()
        end(os.killpg, self.process.pid)
        os.close(self.handle)
        with open(self.place + ".out", "rb") as file:
            output = file.read(OUTPUT_BYTES_READ).decode(errors="replace")
        os.unlink(self.place + ".out")
        shutil.rmtree(self.place, ignore_errors=True)
        return status, output


def wait_all(processes):
    """Blocks until all have ended; `seconds` of each is how long it took."""
    poller = select.poll()
    waiting = {process.handle: process for process in processes}
    for handle in waiting:
        poller.register(handle, select.POLLIN)
    while waiting:
        for handle, _ in poller.poll():
            process = waiting.pop(handle)
            process.seconds = time.monotonic() - process.begin
            poller.unregister(handle)


def shell_line(command, folder, environment):
    """What a reader types to run it again."""
    words = [f"{name}={value}" for name, value in sorted(environment.items())]
    return f"cd {shlex.quote(folder)} && {shlex.join((['env', *words] if words else []) + command)}"


def unit_program(entry):
    """The GoogleTest program that a ctest test runs as a whole; None where it is no such test."""
    command = entry.get("command", [])
    at = next((i for i, part in enumerate(command) if os.path.basename(part) == UNIT_RUNNER), None)
    return command[at + 1] if at is not None else None


def tests_of(entry):
    """A ctest test; that of a whole GoogleTest program as its single tests, for which the program is asked."""
    program = unit_program(entry)
    if program is None:
        return [Test(entry)]
    done = subprocess.run([program, "--gtest_list_tests"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SuiteError(f"{program} does not list its tests: {done.stdout[-500:]}")
    properties = entry.get("properties", []) + [{"name": "SKIP_REGULAR_EXPRESSION", "value": [GTEST_SKIPPED]}]
    found, suite = [], ""
    for line in done.stdout.splitlines():
        name = line.partition("#")[0].strip()
        if line.startswith("  "):
            command = [program, f"{GTEST_FILTER}{suite}{name}"]
            if not (name.startswith("DISABLED_") or suite.startswith("DISABLED_")):
                whole = f"{entry['name'].rpartition('.')[0]}.{suite}{name}"
                found.append(Test(dict(entry, name=whole, command=command, properties=properties), shares=True))
        elif name.endswith("."):
            suite = name
    return found


def entries(build):
    """The tests of a build folder as ctest lists them."""
    if not shutil.which("ctest"):
        raise SuiteError("ctest not found (apt-get install cmake)")
    if not os.path.isfile(os.path.join(build, "CTestTestfile.cmake")):
        raise SuiteError(f"{build} has no tests (make test)")
    done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    try:
        listed = json.loads(done.stdout)["tests"]
    except (json.JSONDecodeError, KeyError) as error:
        raise SuiteError(f"ctest does not list the tests of {build}: {done.stderr.strip() or done.stdout[-500:]}") from error
    if done.returncode:
        raise SuiteError(f"ctest does not list the tests of {build}: {done.stderr.strip()}")
    return listed


def load(build):
    """The tests of a build folder, in ctest's order, those of unit-test programs one by one."""
    return [test for entry in entries(build) for test in tests_of(entry)]
