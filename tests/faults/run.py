#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in real training jobs, lets Kansoku diagnose each recording, and scores the answers.

  run.py                                   every fault, dose and model; finished ones of this commit are skipped
  run.py --fault forward_op --dose 1.0 --model mlp --repeats 3
  run.py --repeats 20 --minutes 40         a part of many runs; the same command goes on where it ended
  run.py --watch --model mlp               let the detector of `kansoku profile --watch` notice the fault by itself
  run.py --environment 2.15-py3.11         the jobs on a PyTorch of `make deps-torch`
  run.py --list | --check | --table        the truths | are they complete | the scores so far
Needs Debian's python3-torch; most faults need root. docs/faults.md says how to add one.
"""
import contextlib
import glob
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(sys.path[0], "torch"))
import environment as torch_environment  # noqa: E402
import kit  # noqa: E402
from kit import ROOT, Events, Impossible  # noqa: E402
from harness.host import LAUNCH  # noqa: E402
from injectors import INJECTORS  # noqa: E402
from score import print_table  # noqa: E402
from truth import MODELS, judge, load  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 10  # the ranks import PyTorch and meet
LEARN_STEPS = 150  # clean ones in front of the fault, with --watch: a detector compares a job with its own past
WINDOW_S = 8
LAST_S = 30  # of a recorder whose command has ended
END_S = 60  # a job that has not ended so long after its time is ended


class Job:
    """The ranks of one run, as their events tell; ends what is left of them, by descriptor, so that no stranger is hit."""

    def __init__(self, folder, stack):
        self.events = Events(folder)
        self.path, self.fd = self.events.path, self.events.fd
        self.pidfds, self.facts = {}, {}
        stack.callback(self.close)

    def close(self):
        self.end()
        for fd in [self.fd, *self.pidfds.values()]:
            os.close(fd)

    def read(self):
        """The events that have come meanwhile."""
        for event in self.events.read():
            if event["event"] == "started":
                self.hold(event["pid"])
            elif event["rank"] == 0 and event["event"] in ("calibrated", "finished"):
                self.facts.update({key: event[key] for key in ("step_ms", "clean_ms", "fault_ms") if key in event})
            yield event

    def hold(self, pid):
        if pid not in self.pidfds:
            with contextlib.suppress(ProcessLookupError):
                self.pidfds[pid] = os.pidfd_open(pid)

    def end(self):
        for pid in list(self.pidfds):  # their data-loader workers may be stuck, and outlive them
            for path in glob.glob(f"/proc/{pid}/task/*/children"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, encoding="ascii") as file:
                    for child in file.read().split():
                        self.hold(int(child))
        for fd in self.pidfds.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            select.select([fd], [], [])


def profile(kansoku, trace, command, environment, record_s, during, options=()):
    """Observes a command that is started with it, for `record_s` seconds (None: until it ends), and returns the diagnosis.

    `during(recorder)` is called while the recording runs; the job has ended when it returns.
    """
    duration = ["--duration", f"{record_s}s"] if record_s else []
    with tempfile.TemporaryFile("w+") as log:
        # Ended early, it passes that on to the command: ranks that have not said who they are end with it.
        with kit.Job([kansoku, "record", "-q", "-o", trace, *duration, "--", *command], "SIGTERM", LAST_S, env=environment,
                     stdout=subprocess.DEVNULL, stderr=log, start_new_session=True) as recorder:
            during(recorder)
            recorder.ended(LAST_S)
        done = subprocess.run([kansoku, "diagnose", "--json", *options, trace], capture_output=True, text=True, check=False)
        if not done.stdout:
            log.seek(0)
            raise kit.Wrong(f"no diagnosis: {done.stderr.strip()} {log.read()[-500:].strip()}")
    return json.loads(done.stdout)


def read_incidents(pipe, incidents):
    """Incidents as they come, each with the time at which it came; the job writes to the same output."""
    for line in pipe:
        with contextlib.suppress(json.JSONDecodeError):
            said = json.loads(line)
            if isinstance(said, dict) and said.get("schema") == "kansoku.incident/1":
                incidents.append((time.monotonic(), said))


def watch_job(kansoku, folder, command, environment, watch_s, stops_at_finding, during):
    """Lets a detector watch a command that is started with it; returns its incidents, each with the time of its report."""
    once = ["--once"] if stops_at_finding else []
    incidents = []
    with tempfile.TemporaryFile("w+") as log:
        with kit.Job([kansoku, "profile", "--watch", *once, "--json", "-q", "--window", f"{WINDOW_S}s", "--for", f"{watch_s}s", "-o", folder, "--",
                      *command], "SIGTERM", LAST_S, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True) as watcher:
            reader = threading.Thread(target=read_incidents, args=(watcher.stdout, incidents))
            reader.start()
            try:
                during(watcher)
                watcher.ended(LAST_S)
            finally:
                watcher.end()
                reader.join()
        if watcher.returncode not in (0, 10) and not incidents and not stops_at_finding:
            log.seek(0)
            raise kit.Wrong(f"watching failed: {log.read()[-500:].strip()}")
    return incidents


def watch(recorder, job, injector, limit_s):
    """Hands the job's events to the injector until the recorder has ended or the time since the first event is over."""
    recorder_fd = os.pidfd_open(recorder.pid)
    deadline = time.monotonic() + START_S + END_S
    started = False
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = select.select([job.fd, recorder_fd], [], [], left)[0]
            for event in job.read():
                if not started:
                    started, deadline = True, time.monotonic() + limit_s
                injector.on_event(event)
            if recorder_fd in ready:
                return
    finally:
        os.close(recorder_fd)
        job.end()


def key_of(options):
    return [options.environment] if options.environment else []


def settings(options, environment, world):
    python = {"PYTHON": torch_environment.python_of(options.environment)} if options.environment else {}
    return {**os.environ, **environment, **python, "RANKS": str(world), "SECONDS": str(options.seconds)}


def baseline_of(options, model, world, commit):
    """A healthy run of a job, recorded once for each tree, as a baseline file."""
    path = os.path.join(os.path.dirname(options.results), f"baseline-{'-'.join([commit, *key_of(options)])}-{options.seconds}-{model}-{world}.json")
    if os.path.exists(path):
        return path
    script, environment, _ = MODELS[model]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kansoku-faults-"))
        job = Job(folder, stack)
        environment = {**settings(options, environment, world), "FAULT_EVENTS": job.path}
        nothing = types.SimpleNamespace(on_event=lambda event: None)
        command = [sys.executable, LAUNCH, os.path.join(HERE, script)]
        diagnosis = profile(options.kansoku, os.path.join(folder, "healthy.pftrace"), command, environment, None,
                            lambda recorder: watch(recorder, job, nothing, options.seconds + END_S), ["--save-baseline", path])
    if not os.path.exists(path):
        raise kit.Wrong(f"no healthy run to compare with: {diagnosis['findings']}")
    return path


def run_one(options, fault, dose, model, commit):
    """One recorded job with one fault, compared with the truth: a dict for the results file."""
    script, environment, world = MODELS[model]
    world = fault.world or world
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kansoku-faults-"))
        injector = INJECTORS[fault.inject["by"]](fault, dose, world, stack)
        job = Job(folder, stack)
        environment = {**settings(options, environment, world), "FAULT_EVENTS": job.path, **fault.inject.get("env", {}), **injector.environment()}
        trace = os.path.join(options.traces or folder, f"{fault.name}-{dose}-{model}.pftrace")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(trace)
        record_s = START_S + options.seconds if fault.expects == "hang" else None
        limit_s = record_s + 1 if record_s else options.seconds + END_S
        command = [sys.executable, LAUNCH, os.path.join(HERE, script)]
        compare = ["--baseline", baseline_of(options, model, world, commit)] if fault.baseline and not options.watch else []
        began = time.monotonic()
        if options.watch:
            if fault.baseline:
                raise Impossible("slow from the first step on: a detector compares a job with its own past")
            environment["FAULT_AFTER"] = str(LEARN_STEPS)
            incidents = watch_job(options.kansoku, options.traces or folder, command, environment, START_S + options.seconds,
                                  fault.expects != "nothing", lambda watcher: watch(watcher, job, injector, limit_s))
            return {**judge_incidents(fault, world, incidents, injector.planted_at), "run_s": time.monotonic() - began, **job.facts}
        diagnosis = profile(options.kansoku, trace, command, environment, record_s,
                            lambda recorder: watch(recorder, job, injector, limit_s), compare)
        now = time.monotonic()
        return {**judge(fault, world, diagnosis), "run_s": now - began, **job.facts, "steps": diagnosis["steps"].get("count", 0),
                "report_s": now - injector.planted_at if injector.planted_at else None,
                "findings": [brief(finding) for finding in diagnosis["findings"][:3]], "notes": diagnosis["notes"]}


def judge_incidents(fault, world, incidents, planted_at):
    """Windows that a detector opened: the first with a finding is its answer; on a job without a culprit, all are."""
    told = [(at, incident) for at, incident in incidents if incident["diagnosis"]["findings"]]
    if fault.expects != "nothing":
        told = told[:1]
    findings = [finding for _, incident in told for finding in incident["diagnosis"]["findings"]]
    notes = [note for _, incident in incidents for note in incident["diagnosis"]["notes"]]
    return {**judge(fault, world, {"findings": findings}), "windows": len(incidents), "causes": [i["cause"] for _, i in incidents],
            "report_s": told[0][0] - planted_at if told and planted_at else None, "findings": [brief(f) for f in findings[:3]], "notes": notes[:8]}


def brief(finding):
    return {key: finding[key] for key in ("kind", "ranks", "phase", "function", "cost_ms_per_step", "share", "confidence")}


def progress(result):
    said = "nothing found"
    if result["findings"]:
        top = result["findings"][0]
        said = f"rank {top['ranks']} {top['kind']} {top['function'] or '-'} {kit.cost(top)} {kit.basis(top)}"
    if "windows" in result:
        said += f" ({result['windows']} windows)"
    step = f"step {result['clean_ms']:.1f} -> {result['fault_ms']:.1f} ms" if "fault_ms" in result else "did not finish"
    wrong = [word for word in ("rank", "function", "kind") if result.get(word) is False]
    return f"{'right' if result['right'] else 'WRONG ' + ' '.join(wrong)}: {said} | {step}, {result['run_s']:.0f} s"


def is_chosen(options, result):
    """Whether a result is of the faults, doses, models and environment that are asked for."""
    return (result.get("environment") == options.environment and
            (not options.fault or result["fault"] in options.fault) and (not options.model or result["model"] in options.model) and
            (not options.dose or result["dose"] is None or result["dose"] in options.dose))


def chosen(options, faults):
    """(fault, dose, model, repeat) in the order of running: each fault once before any is repeated."""
    for repeat, fault in itertools.product(range(options.repeats), faults.values()):
        for dose, model in itertools.product(fault.doses or [None], fault.models):
            if is_chosen(options, {"fault": fault.name, "dose": dose, "model": model, "environment": options.environment}):
                yield fault, dose, model, repeat


def plan_of(options, faults, commit):
    for fault, dose, model, repeat in chosen(options, faults):
        key = [options.seconds, fault.name, dose, model, repeat, *(["watch"] if options.watch else []), *key_of(options)]
        yield kit.Part(key, f"{fault.name} {'' if dose is None else dose} {model} #{repeat + 1}",
                       lambda fault=fault, dose=dose, model=model: run_one(options, fault, dose, model, commit),
                       {"fault": fault.name, "dose": dose, "model": model, "repeat": repeat, "expects": fault.expects, "environment": options.environment})


def list_truths(faults):
    for fault in faults.values():
        doses = " ".join(map(str, fault.doses)) or "-"
        print(f"{fault.name:24} {fault.expects:8} rank {str(fault.ranks):6} {fault.function:44} {','.join(fault.kinds) or '-':28} {doses}\n"
              f"{'':24} {fault.what}")


def parse():
    parser = kit.parser(__doc__)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME", help="only this one (repeatable)")
    parser.add_argument("--dose", action="append", default=[], type=float, help="only this share of a step (repeatable)")
    parser.add_argument("--model", action="append", default=[], choices=MODELS, help="only this job (repeatable)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="begin no run after so long: the suite in parts")
    parser.add_argument("--seconds", type=int, help="how long each job trains [12, with --watch 45]")
    parser.add_argument("--watch", action="store_true", help="a detector opens the windows, instead of one recording of the whole job")
    parser.add_argument("--environment", metavar="NAME", help="the jobs run on this one of tests/torch/environment.py [Debian's PyTorch]")
    parser.add_argument("--results", metavar="FILE", help="[build/faults/COMMIT.jsonl]")
    parser.add_argument("--traces", metavar="FOLDER", help="keep the recordings")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true", help="only check the fault files")
    parser.add_argument("--table", action="store_true", help="only print the scores in the results file")
    options = parser.parse_args()
    options.seconds = options.seconds or (45 if options.watch else 12)
    return options


def main(report):
    options = parse()
    faults, problems = load(os.path.join(HERE, "faults"))
    problems += [f"no fault is called {name}" for name in options.fault if name not in faults]
    if problems:
        print("\n".join(problems))
        return 2
    if options.check:
        print(f"faults: {len(faults)} files, every truth is complete")
        return 0
    if options.list:
        list_truths(faults)
        return 0
    parts = kit.Parts(os.path.join(ROOT, "build/faults"), options.results)
    options.results = parts.path
    if options.traces:
        os.makedirs(options.traces, exist_ok=True)
    plan = plan_of(options, faults, parts.commit)
    if not options.table and not kit.run_until_stopped(lambda: parts.run(plan, report, progress, options.minutes)):
        return 130
    print_table([r for r in (parts.all if options.table else parts.results) if is_chosen(options, r)])
    return 0 if options.table else None


if __name__ == "__main__":
    kit.run(main)
