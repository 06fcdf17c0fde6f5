#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""odd_processes.py KANSOKU PLANNED OUT: processes that are not as a recorder expects them.

A program that becomes another one in the middle of launches, two processes on one device, one that opens the driver by its absolute path, and one in
a container's process namespace: each behaves as without Kansoku, what is recorded is the program's own list of calls, and what is not is
counted and said. planned.c writes its own list, the executor its own. Status 77: not possible here."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from recorded import read_operations, read_recording  # noqa: E402

COUNT = 20
# Two seconds: without eBPF the recorder looks for processes now and then.
SLOW = {"KANSOKU_SOFTGPU_FAULT": "kernel=hold:1+:slow=100ms"}


class Case:
    """One program with and without the recorder, and what both left behind."""

    def __init__(self, kansoku, out, label, command, settings=None, options=("--no-bpf",)):
        self.label, self.problems = label, []
        self.log, self.trace = os.path.join(out, label + ".operations"), os.path.join(out, label + ".pftrace")
        environment = {**os.environ, **SLOW, "KANSOKU_SOFTGPU_OPERATIONS": self.log, **(settings or {})}
        run = [kansoku, "run", "--softgpu", "--", *command]
        self.plain = subprocess.run(run, env=environment, capture_output=True, text=True)
        kit.remove_files(self.log)
        self.watched = kit.record(kansoku, self.trace, *options, "--cuda", "--force", of=run, env=environment)
        if self.plain.returncode != 0 or self.watched.returncode != 0:
            self.wrong(f"status {self.plain.returncode} without, {self.watched.returncode} with: {self.watched.stderr[-500:]}")
        said = self.watched.stdout if "--explain" not in options else self.watched.stdout[:len(self.plain.stdout)]
        if sorted(said.split("\n")) != sorted(self.plain.stdout.split("\n")):
            self.wrong(f"output {self.plain.stdout!r} without, {self.watched.stdout!r} with")
        self.recording = read_recording(self.trace)
        self.losses = kit.answer(kansoku, "cuda", "report", "--json", self.trace).get("losses", {})

    def wrong(self, text):
        self.problems.append(text)

    def slices(self, category, name, pid=None):
        return sorted((one for one in self.recording.slices if one.category == category and one.name == name and pid in (None, self.recording.pids.get(one.track))),
                      key=lambda one: one.begin)

    def compare(self, own_file, log_pid, track_pid):
        """The launches of one program: as many as it made, each within its own begin and end, with a kernel of the executor's each."""
        with open(own_file, encoding="utf-8") as file:
            rows = [line.split() for line in file]
        launches = [(int(begin), int(end)) for _, what, begin, end in rows if what == "launch"]
        ran = [one for one in read_operations(self.log, log_pid) if one.what == "kernel"]
        calls = [one for one in self.slices("cuda", "cuLaunchKernel", track_pid) if one.begin >= launches[0][0]]
        kernels = {one.args.get("correlation"): one for one in self.slices("kernel", "hold", track_pid)}
        if not len(launches) == len(ran) == len(calls):
            self.wrong(f"{len(launches)} launches by the program, {len(ran)} kernels by the executor, {len(calls)} calls recorded")
        for number, ((begin, end), call) in enumerate(zip(launches, calls)):
            if not begin <= call.begin <= call.end <= end:
                self.wrong(f"launch {number}: {call.begin} to {call.end} is not within {begin} to {end}")
            if call.args.get("correlation") not in kernels:
                self.wrong(f"launch {number} has no kernel")
        return int(rows[0][2])


def becomes_another(kansoku, planned, out, options):
    own = os.path.join(out, "exec.txt")
    case = Case(kansoku, out, "exec" + "".join(options).replace("--", "_"), [planned, "exec", own, str(COUNT)], options=options)
    pid = case.compare(own, "*", None)
    before = len(case.slices("cuda", "cuLaunchKernel", pid)) - COUNT
    if before < 1:
        case.wrong("no launch of the program that was there before")
    numbers = [one.args.get("correlation") for one in case.slices("kernel", "hold")]
    if len(set(numbers)) != len(numbers):
        case.wrong("two kernels have one correlation number")
    if not any(key.startswith(f"kansoku.cuda.{pid}.program2.") for key in case.recording.metadata):
        case.wrong("no totals of the second program")
    print(f"{case.label}: {before} launches before, {COUNT} after; losses {case.losses}")
    return case.problems


def two_on_one_device(kansoku, planned, out):
    files = [os.path.join(out, f"two.{i}.txt") for i in range(2)]
    case = Case(kansoku, out, "two", ["sh", "-c", " & ".join(f"{planned} count {path} {COUNT}" for path in files) + " & wait"])
    for path in files:
        with open(path, encoding="utf-8") as file:
            pid = int(file.readline().split()[2])
        case.compare(path, pid, pid)
        if len(case.slices("kernel", "hold", pid)) != COUNT:
            case.wrong(f"process {pid}: {len(case.slices('kernel', 'hold', pid))} kernels with a time, not {COUNT}")
    return case.problems


def by_absolute_path(kansoku, planned, out):
    # LeakSanitizer's helper is one more process that has the driver.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    driver = os.path.join(os.path.dirname(os.path.realpath(kansoku)), "softgpu", "libcuda.so.1")
    # Two of them, one after the other: one has ended long before the recording does.
    run = " && ".join(f"{planned} count {os.path.join(out, f'absolute.{i}.txt')} {COUNT}" for i in range(2))
    case = Case(kansoku, out, "absolute", ["sh", "-c", run], settings={"PLANNED_DRIVER": driver}, options=("--explain",))
    if case.slices("kernel", "hold"):
        case.wrong("kernels, although nobody could see them")
    if case.losses.get("cuda_not_covered", {}).get("count") != 2:
        case.wrong(f"not counted: losses {case.losses}")
    if case.watched.stdout.count("without Kansoku's CUDA library") != 2:
        case.wrong(f"not said: {case.watched.stdout[-1000:]}")
    return case.problems


def in_a_container(kansoku, planned, out):
    kit.need(subprocess.run(["unshare", "--fork", "--pid", "true"], capture_output=True).returncode == 0, "no process namespaces here")
    own = os.path.join(out, "container.txt")
    case = Case(kansoku, out, "container", ["unshare", "--fork", "--pid", planned, "count", own, str(COUNT)])
    if case.compare(own, "*", None) != 1:
        case.wrong("it was in no namespace of its own")
    pids = {case.recording.pids[one.track] for one in case.slices("kernel", "hold")}
    if len(pids) != 1 or 1 in pids:
        case.wrong(f"kernels of processes {pids}")
    tracks = {one.track for one in case.slices("cuda", "cuLaunchKernel")}
    if {case.recording.tids[track] for track in tracks} != pids:
        case.wrong(f"calls of threads {[case.recording.tids[track] for track in tracks]}")
    return case.problems


def main(report):
    kansoku, planned, out = kit.words(__doc__, 3)
    kit.need_root()
    os.makedirs(out, exist_ok=True)
    report.part("exec", becomes_another, kansoku, planned, out, ("--no-bpf",))
    report.part("exec with eBPF", becomes_another, kansoku, planned, out, ())
    report.part("two on one device", two_on_one_device, kansoku, planned, out)
    report.part("by absolute path", by_absolute_path, kansoku, planned, out)
    report.part("container", in_a_container, kansoku, planned, out)


kit.run(main)
