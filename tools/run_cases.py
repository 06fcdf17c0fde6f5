#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs text cases: run_cases.py --kansoku PROGRAM FILE...

A case is a few lines of data; the first word of a line says what it is:
  case NAME                begins a case
  needs WORDS              root bpf torch tracefs chromium clang-19 libclc-19 halide gpu data duckdb: a gate that fails skips the case, with the reason
  timeout SECONDS          for each command, and for each wait [120]: so long that only what is broken reaches it
  env NAME=VALUE
  setup COMMAND            a shell command that must succeed; cleanup COMMAND runs at the end whatever happens
  before COMMAND           starts a command in the background; {{before_pid}} is the process of the last one, {{before_log}} what it prints
  wait COMMAND until EXPECTATION    runs it again and again until what would follow `expect` holds; a case never sleeps instead
  run COMMAND              a shell command; `kansoku` is the program under test
  expect exit N
  expect stdout|stderr ~ REGEX      matches a line of the output; !~ matches none
  expect stdout = TEXT              is the whole output
  expect file PATH exists | ~ REGEX | mode 0600
  expect none stdout | stderr | file PATH
  expect json PATH OP VALUE         on the output; OP is = != < <= > >= ~
  expect json PATH within P% of VALUE
{{tmp}} is a fresh folder for each case, {{source}} the source tree, {{port}} a port that nobody listened at when the case began. Every command runs in a process group of its own, which is
ended at the time limit and at the end of the case. A case that needs bpf or torch is live: it looks at programs while they run.
ctest runs one live test at a time, beside those that are not. Exit status: 0 passed, 1 failed, 77 all skipped.
"""
import argparse
import atexit
import json
import operator
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDS = {"case", "needs", "timeout", "env", "setup", "cleanup", "before", "wait", "run", "expect"}
LIVE = {"bpf", "torch"}  # gates of cases that look at programs while they run
TIMEOUT_S = 120.0
LOOK_EVERY_S = 0.1
OPERATORS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class CaseError(Exception):
    """A case that does not hold, with what was expected."""


def quiet(command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Gates:
    """What this machine offers; each gate is asked once."""

    def __init__(self, kansoku):
        self.kansoku = kansoku
        self.known = {}
        self.tests = {
            "root": lambda: os.geteuid() == 0,
            "bpf": lambda: quiet([kansoku, "record", "-q", "--probes", "sched", "--attach", "perf", "-o", os.path.join(self.tmp(), "x"),
                                  "--", "true"]),
            "torch": lambda: quiet(["/usr/bin/python3", "-c", "import torch"]),
            "tracefs": lambda: os.path.isdir("/sys/kernel/tracing/events") or quiet(
                ["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"]),
            "chromium": lambda: shutil.which("chromium") is not None,
            "clang-19": lambda: shutil.which("clang++-19") is not None,
            "libclc-19": lambda: any(os.path.exists(f + "/clc/nvptx64--nvidiacl.bc") for f in ("/usr/lib", "/usr/share")),
            "halide": lambda: quiet(["/usr/bin/python3", "-c", "import halide, numpy"]),
            "gpu": lambda: os.path.exists("/dev/nvidiactl"),
            "duckdb": self.has_duckdb,
            "data": lambda: bool(os.environ.get("KANSOKU_DATA")),
        }

    def has_duckdb(self):
        folder = self.tmp()
        experiment = os.path.join(folder, "e.toml")
        with open(experiment, "w", encoding="utf-8") as text:
            text.write('horizon = 1\n[clusters.c]\nslots = 1\n[pipelines.p]\n'
                       'arrivals = { kind = "constant", every = 1 }\ntasks = [{ cluster = "c", duration = 1 }]\n')
        return quiet([self.kansoku, "simulate", "run", "-q", experiment, "--records", os.path.join(folder, "r.parquet")])

    @staticmethod
    def tmp():
        folder = tempfile.mkdtemp(prefix="kansoku-gate-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def missing(self, names):
        for name in names:
            if name not in self.tests:
                raise CaseError(f"unknown gate {name}")
            if name not in self.known:
                self.known[name] = self.tests[name]()
            if not self.known[name]:
                return name
        return None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Run:
    """One case while it runs."""

    def __init__(self, lines, kansoku):
        self.lines, self.timeout = lines, TIMEOUT_S
        self.tmp = tempfile.mkdtemp(prefix="kansoku-case-")
        self.values = {"tmp": self.tmp, "source": ROOT, "examples": os.path.join(ROOT, "examples"), "port": str(free_port())}
        self.environment = dict(os.environ, KANSOKU=kansoku, PATH=os.path.dirname(kansoku) + ":" + os.environ["PATH"], LC_ALL="C.UTF-8")
        self.cleanups, self.background, self.result = [], [], None

    def fill(self, text):
        return re.sub(r"{{(\w+)}}", lambda match: self.values[match.group(1)], text)

    def start(self, command, **streams):
        return subprocess.Popen(["/bin/bash", "-c", command], env=self.environment, cwd=self.tmp, start_new_session=True, **streams)

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    @staticmethod
    def state_of(process, streams):
        """What a command that does not end is at: its threads, and the last that it printed."""
        fields = "pid,tid,stat,pcpu,time,wchan:24,args"
        try:
            command = ["ps", "-L", "-s", str(process.pid), "-o", fields]
            text = subprocess.run(command, stdout=subprocess.PIPE, text=True, errors="replace", check=False).stdout[:8000]
        except OSError as error:
            text = f"no list of its threads: {error}\n"
        for stream in streams:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 2000))
            text += stream.read().decode(errors="replace")
        return text

    def shell(self, command):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            try:
                status = process.wait(timeout=self.timeout)
            except subprocess.TimeoutExpired as late:
                raise CaseError(f"took longer than {self.timeout:.0f} s: {command}\n{self.state_of(process, (out, err))}") from late
            finally:
                self.end(process)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode(errors="replace"))
        return status if status >= 0 else 128 - status, texts[0], texts[1]

    def step(self, word, text):
        if word == "timeout":
            self.timeout = float(text)
        elif word == "env":
            name, _, value = text.partition("=")
            self.environment[name] = value
        elif word == "setup":
            status, _, error = self.shell(text)
            if status != 0:
                raise CaseError(f"setup failed ({status}): {text}\n{error}")
        elif word == "cleanup":
            self.cleanups.append(text)
        elif word == "before":
            self.begin(text)
        elif word == "wait":
            self.wait(*text.rpartition(" until ")[::2])
        elif word == "run":
            self.result = self.shell(text)
        elif word == "expect":
            self.expect(text)

    def begin(self, command):
        path = os.path.join(self.tmp, f".before-{len(self.background)}")
        with open(path, "wb") as log:
            process = self.start(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.background.append(process)
        self.values["before_pid"], self.values["before_log"] = str(process.pid), path

    def wait(self, command, wanted):
        end = time.monotonic() + self.timeout
        while True:
            for process in self.background:
                process.poll()  # what has ended is no process any more
            self.result = self.shell(command)
            if self.holds(wanted):
                return
            if time.monotonic() > end:
                raise CaseError(f"waited {self.timeout:.0f} s for {wanted} of {command}{self.shown()}{self.logs()}")
            time.sleep(LOOK_EVERY_S)

    def shown(self):
        status, out, err = self.result
        return f"\n  exit {status}\n  stdout: {out[-1500:]}\n  stderr: {err[-1500:]}"

    def logs(self):
        texts = []
        for index in range(len(self.background)):
            with open(os.path.join(self.tmp, f".before-{index}"), encoding="utf-8", errors="replace") as log:
                texts.append(f"\n  before {index}: {log.read()[-1500:]}")
        return "".join(texts)

    def expect(self, text):
        if self.result is None:
            raise CaseError("expect before run")
        if not self.holds(text):
            raise CaseError(f"expected {text}{self.shown()}{self.logs()}")

    def holds(self, text):
        status, out, err = self.result
        what, _, rest = text.partition(" ")
        streams = {"stdout": out, "stderr": err}
        holds = False
        if what == "exit":
            holds = status == int(rest)
        elif what in streams:
            kind, _, wanted = rest.strip().partition(" ")
            holds = matches(kind, wanted, streams[what])
        elif what == "none":
            kind, _, path = rest.partition(" ")
            holds = not os.path.exists(path.strip()) if kind == "file" else streams[kind] == ""
        elif what == "file":
            holds = file_holds(rest)
        elif what == "json":
            holds = json_holds(out, rest)
        else:
            raise CaseError(f"unknown expectation: {text}")
        return holds

    def close(self):
        for command in self.cleanups:
            try:
                self.shell(command)
            except CaseError:
                pass
        for process in self.background:
            self.end(process)
        shutil.rmtree(self.tmp, ignore_errors=True)


def matches(kind, wanted, text):
    if kind in ("~", "!~"):
        return (re.search(wanted.strip(), text, re.MULTILINE) is not None) == (kind == "~")
    return kind == "=" and text.strip() == wanted.strip()


def file_holds(text):
    path, _, rest = text.partition(" ")
    kind, _, wanted = rest.strip().partition(" ")
    if not os.path.exists(path):
        return False
    if kind == "mode":
        return os.stat(path).st_mode & 0o777 == int(wanted, 8)
    if kind == "~":
        with open(path, encoding="utf-8", errors="replace") as content:
            return re.search(wanted.strip(), content.read(), re.MULTILINE) is not None
    return kind == "exists"


def number(text):
    try:
        return int(text)
    except ValueError:
        return float(text)


def json_holds(out, text):
    path, kind, wanted = text.split(None, 2)
    try:
        value = json.loads(out)
    except json.JSONDecodeError:
        return False
    for key in path.split("."):
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return False
    if kind == "~":
        return re.search(wanted, str(value)) is not None
    if kind == "within":
        percent, _, middle = wanted.partition("% of ")
        return isinstance(value, (int, float)) and abs(value - float(middle)) <= float(percent) / 100 * abs(float(middle))
    return OPERATORS[kind](value, number(wanted) if isinstance(value, (int, float)) and not isinstance(value, bool) else wanted)


def parse(path):
    cases = []
    with open(path, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            if not line.strip() or line.startswith("#"):
                continue
            word, _, text = line.strip().partition(" ")
            if word not in WORDS:
                raise CaseError(f"{path}:{number}: unknown word {word}")
            if word == "case":
                cases.append((text.strip(), []))
            elif not cases:
                raise CaseError(f"{path}:{number}: {word} before case")
            else:
                cases[-1][1].append((word, text.strip()))
    return cases


def needs_of(lines):
    return [gate for word, text in lines if word == "needs" for gate in text.split()]


def run_case(name, lines, gates, kansoku):
    lacking = gates.missing(needs_of(lines))
    if lacking:
        print(f"skipped  {name}: needs {lacking}")
        return "skipped"
    run = Run(lines, kansoku)
    try:
        for word, text in lines:
            if word != "needs":
                run.step(word, run.fill(text))
    except CaseError as failure:
        print(f"FAILED   {name}: {failure}")
        return "failed"
    finally:
        run.close()
    print(f"passed   {name}", flush=True)
    return "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kansoku", default=os.path.join(ROOT, "build/release/kansoku"))
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--live", choices=("yes", "no"), help="only cases that are, or are not, live")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    kansoku = os.path.abspath(options.kansoku)
    gates = Gates(kansoku)
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for path in options.files:
        for name, lines in parse(path):
            live = "yes" if LIVE.intersection(needs_of(lines)) else "no"
            if options.only in name and options.live in (None, live):
                totals[run_case(name, lines, gates, kansoku)] += 1
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    if totals["failed"] or not sum(totals.values()):
        sys.exit(1)
    sys.exit(77 if not totals["passed"] else 0)


if __name__ == "__main__":
    main()
