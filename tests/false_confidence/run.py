#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Asks whether Kansoku claims anything that is not true: programs whose truth is known are recorded and diagnosed, files in others' tools'
forms are judged, and every finding and exit status outside of the truth is wrong.

  run.py                        every scenario; what is finished for this commit is skipped
  run.py --only NAME...         some of them
  run.py --minutes 30           begins no new one after that time
  run.py --files                those of files alone, all of them anew; fails if any is wrong. --keep FOLDER keeps the files
  run.py --list | --check | --table   the truths | are they complete | the score so far, in Markdown
  run.py --check --files        also: are the files the same each time
Recording needs root and Debian's python3-torch and gcc, files need nothing. What had a wrong answer is kept in build/false-confidence/wrong.
"""
import contextlib
import ctypes
import hashlib
import json
import os
import resource
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import ROOT, Events, end_process, need, need_root, need_tool, start_ticks  # noqa: E402
from harness.host import LAUNCH  # noqa: E402
import foreign  # noqa: E402
import ordinary  # noqa: E402
import profiles  # noqa: E402
from files import SCENARIOS as OF_FILES  # noqa: E402
from scenario import PYTHON, judge, problems, told  # noqa: E402

SCENARIOS = ordinary.SCENARIOS + foreign.SCENARIOS + profiles.SCENARIOS + OF_FILES
HERE, FOLDER = os.path.dirname(os.path.abspath(__file__)), os.path.join(ROOT, "build/false-confidence")
LIMIT_S = 90  # a recording that has not ended by then is ended
PR_SET_CHILD_SUBREAPER = 36
# What others may take of one processor before a finding about waiting for processors is not judged: it may be true.
DISTURBED = 0.1
# How much slower the machine itself may become from one second to another before `slowed` is not judged, and how this is measured.
UNSTEADY, PACE_EVERY_S, PACE_ROUNDS, PACE_WINDOW = 1.10, 0.05, 20_000, 20
NOT_TAKEN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SECONDS", "RANKS", "WIDTH", "BATCH", "LIGHT")


def build_small(static):
    path = os.path.join(FOLDER, "small-static" if static else "small")
    source = os.path.join(HERE, "programs/small.c")
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
        subprocess.run(["gcc", "-O1", *(["-static"] if static else []), "-o", path, source, "-pthread"], check=True)
    return path


def children():
    """Of this process; it adopts the orphans of its programs."""
    with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]
    return []


def end_children():
    while pids := children():
        for pid in pids:
            end_process(pid, start_ticks(pid))
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def busy_s():
    """Processor time of the whole host."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Pace(threading.Thread):
    """Processor time of the same small loop again and again while a program is recorded: about 1 % of one processor."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.times = threading.Event(), []

    def run(self):
        while not self.over.wait(PACE_EVERY_S):
            began = time.thread_time()
            for _ in range(PACE_ROUNDS):
                pass
            self.times.append(time.thread_time() - began)

    def slowdown(self):
        """The slowest second against the fastest one, by medians; 1: too short."""
        self.over.set()
        self.join()
        medians = [statistics.median(self.times[at:at + PACE_WINDOW]) for at in range(len(self.times) - PACE_WINDOW + 1)]
        return max(medians) / min(medians) if medians else 1.0


def own_s():
    """Processor time of all that this process has started and that has ended, and its own."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)))


class Recording:
    """One scenario: its programs, the recorder, and the signals that they get."""

    def __init__(self, options, scenario, folder, stack):
        self.options, self.scenario, self.folder = options, scenario, folder
        self.trace = os.path.join(folder, "run.pftrace")
        self.events = Events(folder)
        stack.callback(self.events.close)
        stack.callback(end_children)
        self.log = stack.enter_context(open(os.path.join(folder, "log"), "w+", encoding="utf-8", errors="replace"))
        self.counts, self.pids, self.due = {}, {}, []
        self.words = {"folder": folder, "programs": os.path.join(HERE, "programs"), "python": PYTHON, "launch": LAUNCH, "root": ROOT,
                      "faults": os.path.join(ROOT, "tests/faults"), "small": build_small(False), "static": build_small(True)}
        self.environment = {name: value for name, value in os.environ.items() if name not in NOT_TAKEN}
        self.environment |= {"FAULT_EVENTS": self.events.path, "MEETING": folder + "/", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
                             **dict(zip(scenario.env, self.filled(scenario.env.values())))}

    def filled(self, command):
        def fill(word):
            for name, value in self.words.items():
                word = word.replace("{" + name + "}", value)
            return word
        return [fill(word) for word in command]

    def start(self, command):
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log,
                                start_new_session=True)

    def record(self):
        """The recorder's exit status."""
        for beside in self.scenario.beside:
            self.start(self.filled(beside))
        command, target = self.filled(self.scenario.command), []
        if self.scenario.attach:
            self.command = self.start(command)
            self.follow(self.command, lambda: self.counts.get("ready", 0) >= self.scenario.ready)
            need(self.command.poll() is None, "the command ended before it was observed: " + self.said())
            pid = self.command.pid if self.scenario.attach == "command" else self.pids.get(self.scenario.attach)
            need(pid, f"no process is {self.scenario.attach}")
            target, command = ["-p", str(pid)], []
        self.recorder = self.start([self.options.kansoku, "record", "-q", "-o", self.trace, *self.scenario.options, *target,
                                    *(["--", *command] if command else [])])
        self.follow(self.recorder, lambda: False)
        return self.recorder.wait()

    def follow(self, process, done):
        """Reads events and sends the signals that are due until the process has ended or done() is true."""
        fd, deadline = os.pidfd_open(process.pid), time.monotonic() + LIMIT_S
        try:
            while not done():
                now = time.monotonic()
                kit.expect(now < deadline, f"not over after {LIMIT_S} s")
                for at, act in [pair for pair in self.due if pair[0] <= now]:
                    self.due.remove((at, act))
                    self.act(act)
                wait = max(0.0, min([deadline, *(at for at, _ in self.due)]) - now)
                ready = select.select([self.events.fd, fd], [], [], wait)[0]
                for event in self.events.read():
                    self.on_event(event)
                if fd in ready:
                    return
        finally:
            os.close(fd)

    def on_event(self, event):
        name = event["event"]
        self.counts[name] = self.counts.get(name, 0) + 1
        if name == "started":
            self.pids[f"rank {event['rank']}" if event.get("rank") is not None else f"pid {event['pid']}"] = event["pid"]
        self.due += [(time.monotonic() + act.after_s, act) for act in self.scenario.acts if (act.event, act.count) == (name, self.counts[name])]

    def act(self, act):
        known = {"recorder": lambda: [self.recorder.pid], "command": lambda: [self.command.pid],
                 "ranks": lambda: [pid for name, pid in self.pids.items() if name.startswith("rank ")], "STARTED": lambda: list(self.pids.values())}
        for pid in known.get(act.target, lambda: [self.pids[act.target]])():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.Signals["SIG" + act.signal])

    def cut(self):
        size = os.path.getsize(self.trace)
        first, last = (round(share * size) for share in self.scenario.keep)
        with open(self.trace, "r+b") as file:
            file.seek(first)
            kept = file.read(last - first)
            file.seek(0)
            file.truncate()
            file.write(kept)

    def said(self):
        self.log.flush()
        self.log.seek(0)
        lines = self.log.read().splitlines()
        return "\n".join([line for line in lines if line.startswith("kansoku: ")] or lines[-3:])[-400:]


def judge_files(options, scenario, folder):
    """Writes the files of a scenario and asks about them; they stay if the answer is wrong or the user wants them."""
    began, place = time.monotonic(), os.path.join(folder, scenario.name)
    os.makedirs(place)
    scenario.make(place)
    command = [options.kansoku, *(word.replace("{folder}", place) for word in scenario.ask)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    answer = json.loads(done.stdout) if done.stdout.startswith("{") else None
    wrong = judge(scenario, done.returncode, answer, printed=done.stdout + done.stderr)
    if wrong and not options.keep:
        kept = os.path.join(FOLDER, "wrong", scenario.name)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(place, kept)
    return {"right": not wrong, "wrong": wrong, "status": done.returncode, "run_s": time.monotonic() - began, "outside": 0.0,
            "error": done.stderr.strip()[-300:], **facts(answer)}


def run_files(options, scenario):
    if options.keep:
        shutil.rmtree(os.path.join(options.keep, scenario.name), ignore_errors=True)
        return judge_files(options, scenario, options.keep)
    with tempfile.TemporaryDirectory(prefix="kansoku-false-") as folder:
        return judge_files(options, scenario, folder)


def run_one(options, scenario):
    if scenario.make:
        return run_files(options, scenario)
    need_root()
    for tool in ("gcc", *scenario.needs):
        need_tool(tool)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kansoku-false-"))
        recording = Recording(options, scenario, folder, stack)
        began, busy, own = time.monotonic(), busy_s(), own_s()
        pace = Pace()
        pace.start()
        record_status = recording.record()
        slowdown = pace.slowdown()
        end_children()
        run_s = time.monotonic() - began
        outside = (busy_s() - busy - own_s() + own) / run_s
        kit.expect(os.path.exists(recording.trace) or record_status == -signal.SIGKILL, f"no recording, status {record_status}: {recording.said()}")
        if os.path.exists(recording.trace) and scenario.keep != (0.0, 1.0):
            recording.cut()
        done = subprocess.run([options.kansoku, "diagnose", "--json", recording.trace], capture_output=True, text=True, check=False)
        diagnosis = json.loads(done.stdout) if done.stdout.startswith("{") else None
        wrong = judge(scenario, done.returncode, diagnosis)
        for kind, disturbs, how in (("cpu_contention", outside > DISTURBED, f"others used {outside:.2f} processors"),
                                    ("slowed", slowdown > UNSTEADY, f"the machine became {slowdown:.2f} times slower")):
            if wrong and disturbs:
                wrong = judge(scenario, done.returncode, diagnosis, kind)
                need(wrong, f"{how}; nothing else than {kind} is in doubt")
        if wrong and os.path.exists(recording.trace):
            os.makedirs(os.path.join(FOLDER, "wrong"), exist_ok=True)
            shutil.copy(recording.trace, os.path.join(FOLDER, "wrong", scenario.name + ".pftrace"))
        return {"right": not wrong, "wrong": wrong, "status": done.returncode, "record_status": record_status, "run_s": run_s, "outside": outside,
                "slowdown": slowdown, "events": recording.counts, "error": done.stderr.strip()[-300:], **facts(diagnosis), "log": recording.said() if wrong else ""}


def facts(answer):
    if not answer:
        return {}
    keys = {"kind": "", "ranks": [], "function": "", "share": None, "confidence": None, "evidence": []}
    findings = [{"job": job, **{key: finding.get(key, none) for key, none in keys.items()}} for job, finding in told(answer)]
    if "job" not in answer:  # no diagnosis
        return {"findings": findings}
    jobs = [answer, *answer.get("other_jobs", [])]
    return {"findings": findings,
            "jobs": [{"job": job["job"], "verdict": job["verdict"], "steps": job["steps"].get("count", 0), "found_by": job["steps"].get("found_by"),
                      "missing": job["missing"], "notes": job["notes"]} for job in jobs]}


def progress(result):
    jobs = ", ".join(f"{job['verdict']} {job['steps']} steps" for job in result.get("jobs", [])) or result["error"]
    kinds = " ".join(f"{finding['kind']}{finding['ranks']}" for finding in result.get("findings", []))
    return (f"{'right' if result['right'] else 'WRONG'}: status {result['status']} {kinds} | {jobs} | {result['run_s']:.0f} s, others "
            f"{result['outside']:.2f}" + "".join(f"\n    {text}" for text in result["wrong"]))


def plan_of(options, chosen):
    for repeat in range(options.repeats):
        for scenario in chosen:
            yield kit.Part([scenario.name, repeat], f"{scenario.group}: {scenario.name}", lambda scenario=scenario: run_one(options, scenario),
                           {"name": scenario.name, "group": scenario.group})


def print_table(results):
    last = {}
    for result in results:
        key = (result["commit"], *result["key"])
        if "not_run" not in result or key not in last:
            last[key] = result
    ran = [result for result in last.values() if "not_run" not in result]
    print("\n| group | runs | right | wrong |\n|---|---|---|---|")
    for group in [*dict.fromkeys(scenario.group for scenario in SCENARIOS), None]:
        of_group = [result for result in ran if group in (None, result["group"])]
        if not of_group:
            continue
        right = sum(result["right"] for result in of_group)
        print(f"| {group or 'all'} | {len(of_group)} | {right} | {len(of_group) - right} |")
    why = {scenario.name: scenario.why for scenario in SCENARIOS}
    for result in ran:
        if not result["right"]:
            print(f"\n* `{result['name']}` ({result['commit']}): {'; '.join(result['wrong'])}. The truth: {why.get(result['name'], 'no such scenario now')}")
    for result in last.values():
        if "not_run" in result:
            print(f"\nnot run: {result['name']}: {result['not_run']}")


def print_list(scenarios):
    for scenario in scenarios:
        may = ", ".join(f"{may.kind} {'any' if may.ranks is None else list(may.ranks)}" for may in scenario.findings) or "none"
        print(f"{scenario.name:28} {scenario.group:14} status {' '.join(map(str, sorted(scenario.statuses))):8} findings {may}\n{'':28} {scenario.why}")
    print(f"{len(scenarios)} scenarios")


def parse():
    parser = kit.parser(__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--minutes", type=float, help="begin no new scenario after this time")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--results", metavar="FILE", help="[build/false-confidence/COMMIT.jsonl]")
    parser.add_argument("--files", action="store_true", help="only the scenarios of files, all anew; a wrong answer fails")
    parser.add_argument("--keep", metavar="FOLDER", type=os.path.abspath, help="keep the files of scenarios there")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true", help="only check the scenarios' own truths")
    parser.add_argument("--table", action="store_true", help="only print the score of the results file")
    return parser.parse_args()


def unsteady(scenarios):
    """Whose files are not the same each time."""
    for scenario in scenarios:
        if digest_of(scenario) != digest_of(scenario):
            yield f"{scenario.name}: its files differ from one time to the next"


def digest_of(scenario):
    with tempfile.TemporaryDirectory(prefix="kansoku-false-") as folder:
        scenario.make(folder)
        digest = hashlib.sha1()
        for path in sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names):
            digest.update(os.path.relpath(path, folder).encode())
            with open(path, "rb") as file:
                digest.update(file.read())
        return digest.hexdigest()


def main(report):
    options = parse()
    chosen = [scenario for scenario in SCENARIOS if (not options.only or scenario.name in options.only) and (scenario.make or not options.files)]
    unknown = set(options.only) - {scenario.name for scenario in SCENARIOS}
    gaps = [*problems(SCENARIOS), *(unsteady(chosen) if options.check and options.files else ())]
    if wrong := [*gaps, *(f"no scenario is called {name}" for name in sorted(unknown))]:
        print("\n".join(wrong))
        return 2
    if options.check:
        print(f"false confidence: {len(chosen)} scenarios, every truth is complete")
        return 0
    if options.list:
        print_list(chosen)
        return 0
    if options.files and not options.table:
        with tempfile.TemporaryDirectory(prefix="kansoku-false-") as folder:
            return run_chosen(options, chosen, kit.Parts(folder, options.results), report)
    os.makedirs(FOLDER, exist_ok=True)
    return run_chosen(options, chosen, kit.Parts(FOLDER, options.results), report)


def run_chosen(options, chosen, parts, report):
    if not options.table:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if not kit.run_until_stopped(lambda: parts.run(plan_of(options, chosen), report, progress, options.minutes, again=options.files)):
            return 130
    print_table(parts.all if options.table else parts.results)
    if options.files and not all((parts.result([scenario.name, 0]) or {"right": False})["right"] for scenario in chosen):
        return 1
    return 0 if options.table else None


if __name__ == "__main__":
    kit.run(main)
