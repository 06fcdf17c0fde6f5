#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ranges.py KANSOKU OUT PROGRAM...: ranges of NVTX in a recording are those that each program says it made, and cover on each stream what was
launched within them; beside another tool for NVTX there are none, and it is said. PROGRAM is ranges.c, built with one client or another.
Status 77: not possible here."""
import collections
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from recorded import read_recording  # noqa: E402

Own = collections.namedtuple("Own", "name tid begin end launches")
OTHER = "/nowhere/libanother_tool.so"


def record(kansoku, program, trace, environment=None, options=("--no-bpf",)):
    done = kit.record(kansoku, trace, "-q", *options, "--cuda", "--force", of=[kansoku, "run", "--softgpu", "--", program],
                      env={**os.environ, **(environment or {})}, timeout=300)
    kit.expect(done.returncode == 0, f"{program}: {done.stderr}")
    return done


def own_ranges(text):
    return [Own(words[1], int(words[2]), int(words[3]), int(words[4]), int(words[5])) for words in map(str.split, text.splitlines()) if words[0] == "range"]


def report_of(kansoku, trace):
    return kit.answer(kansoku, "cuda", "report", "--json", trace)


def counts_of(result):
    return {name: loss["count"] if isinstance(loss, dict) else loss for name, loss in result["losses"].items()}


def check_host(own, recording, problems):
    """Each range within the program's own readings around it."""
    recorded = collections.defaultdict(list)
    for one in recording.slices:
        if one.category == "user_annotation":
            recorded[one.name].append(one)
    for name in {*recorded, *(one.name for one in own)}:
        mine = sorted((one for one in own if one.name == name), key=lambda one: one.begin)
        theirs = sorted(recorded[name], key=lambda one: one.begin)
        if len(mine) != len(theirs):
            problems.append(f"{name}: {len(mine)} by the program, {len(theirs)} recorded")
            continue
        for said, seen in zip(mine, theirs):
            if not said.begin <= seen.begin <= seen.end <= said.end:
                problems.append(f"{name}: {seen.begin} to {seen.end} is not within {said.begin} to {said.end}")
            on_thread = recording.tids.get(seen.track) == said.tid
            if on_thread != (name != "whole"):
                problems.append(f"{name}: on track {recording.names.get(seen.track)!r}")
            if seen.args.get("domain") != ("model" if name == "backward" else None):
                problems.append(f"{name}: domain {seen.args.get('domain')}")


def check_device(own, recording, problems):
    """The span of each range on a stream is that of the kernels whose launches lie within it."""
    calls = {one.args.get("correlation"): one for one in recording.slices if one.category == "cuda"}
    kernels = [one for one in recording.slices if one.category == "kernel"]
    expected = collections.Counter()
    for said in own:
        if said.name == "whole":
            continue
        spans = collections.defaultdict(list)
        for kernel in kernels:
            call = calls[kernel.args["correlation"]]
            if said.begin <= call.begin <= said.end and recording.tids.get(call.track) == said.tid:
                spans[kernel.track].append(kernel)
        if sum(map(len, spans.values())) != said.launches:
            problems.append(f"{said.name}: {sum(map(len, spans.values()))} kernels recorded, {said.launches} launched")
        for track, inside in spans.items():
            stream = recording.names[track]
            expected[(stream, said.name, min(one.begin for one in inside), max(one.end for one in inside), len(inside))] += 1
    seen = collections.Counter()
    for one in recording.slices:
        if one.category != "gpu_user_annotation":
            continue
        label = recording.names[one.track]
        if " on " not in label:
            problems.append(f"projected onto {label!r}")
            continue
        seen[(label.split(" on ", 1)[1], one.name, one.begin, one.end, one.args["operations"])] += 1
    for key in sorted((expected - seen).keys()):
        problems.append(f"not projected: {key}")
    for key in sorted((seen - expected).keys()):
        problems.append(f"projected, and should not be: {key}")
    return sum(expected.values())


def check_report(own, result, problems):
    rows = {row["name"]: row for row in result["ranges"] or []}
    for name in {one.name for one in own}:
        mine = [one for one in own if one.name == name]
        row = rows.get(name)
        if row is None or row["count"] != len(mine):
            problems.append(f"report: {name}: {row}")
            continue
        if name != "whole" and row["op_count"] != sum(one.launches for one in mine):
            problems.append(f"report: {name}: {row['op_count']} operations of {sum(one.launches for one in mine)}")
        if row["host_us"] * 1e3 > sum(one.end - one.begin for one in mine):
            problems.append(f"report: {name}: {row['host_us']} us of the host")
        if name != "whole" and not 0 < row["share"] <= 1 + 1e-9:
            problems.append(f"report: {name}: share {row['share']}")
    if (rows.get("whole") or {}).get("device_us") is not None:
        problems.append("report: a range of the process has device time")


def check_export(kansoku, trace, out, counts, problems):
    path = os.path.join(out, "ranges.json")
    subprocess.run([kansoku, "export", "--kineto", "--force", trace, "-o", path], capture_output=True, text=True, check=True)
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    for category, count in counts.items():
        rows = [one for one in events if one.get("cat") == category and one["ph"] == "X"]
        if len(rows) != count:
            problems.append(f"export: {len(rows)} of {category}, {count} recorded")
        if category == "gpu_user_annotation" and any(one["pid"] != 0 for one in rows):
            problems.append("export: a projected range is not on its device")


def watched(kansoku, program, out, options=("--no-bpf",)):
    problems = []
    trace = os.path.join(out, os.path.basename(program) + ".pftrace")
    done = record(kansoku, program, trace, options=options)
    own, recording = own_ranges(done.stdout), read_recording(trace)
    if "levels 0 1 1 0" not in done.stdout:
        problems.append(f"levels: {done.stdout.splitlines()[0]}")
    check_host(own, recording, problems)
    projected = check_device(own, recording, problems)
    result = report_of(kansoku, trace)
    check_report(own, result, problems)
    check_export(kansoku, trace, out, {"user_annotation": len(own), "gpu_user_annotation": projected}, problems)
    lost = {name: count for name, count in counts_of(result).items() if name.startswith("cuda_ranges")}
    if lost != {"cuda_ranges_lost": 2}:  # "setup" and "cuda" began before cuInit
        problems.append(f"lost: {lost}")
    print(f"{os.path.basename(program)}: {len(own)} ranges, {projected} of them projected: {len(problems)} problems")
    return problems


def beside_another(kansoku, program, out):
    problems = []
    trace = os.path.join(out, "beside.pftrace")
    done = record(kansoku, program, trace, {"NVTX_INJECTION64_PATH": OTHER})
    if "levels -2 -2 -2 -2" not in done.stdout:
        problems.append(f"beside another tool: {done.stdout.splitlines()[0]}")
    if done.stderr.count("NVTX ranges are left out: NVTX_INJECTION64_PATH is " + OTHER) < 1:
        problems.append(f"beside another tool: nothing is said: {done.stderr!r}")
    recording = read_recording(trace)
    if any("annotation" in one.category for one in recording.slices):
        problems.append("beside another tool: ranges are recorded")
    counted = counts_of(report_of(kansoku, trace))
    if counted.get("cuda_ranges_elsewhere") != 1:
        problems.append(f"beside another tool: counted {counted}")
    print(f"beside another tool: {len(problems)} problems")
    return problems


def driver_by_path(kansoku, program, out):
    """The library is there for the ranges alone, and does not pass for the driver."""
    problems = []
    trace = os.path.join(out, "by_path.pftrace")
    driver = os.path.join(os.path.dirname(kansoku), "softgpu", "libcuda.so.1")
    done = record(kansoku, program, trace, {"RANGES_DRIVER": driver})
    if "levels 0 1 1 0" not in done.stdout:
        problems.append(f"driver by its path: {done.stdout.splitlines()[0]}")
    counted = counts_of(report_of(kansoku, trace))
    if counted.get("cuda_not_covered") != 1:
        problems.append(f"driver by its path: counted {counted}")
    print(f"driver by its path: {len(problems)} problems")
    return problems


def main(report):
    kansoku, out, *programs = sys.argv[1:]
    kansoku = os.path.abspath(kansoku)
    kit.need_root()
    os.makedirs(out, exist_ok=True)
    for program in programs:
        report.part(os.path.basename(program), watched, kansoku, program, out)
    # Where there is eBPF: the news of its exec comes when it is at work.
    report.part("with eBPF", watched, kansoku, programs[0], out, ())
    report.part("beside another tool", beside_another, kansoku, programs[0], out)
    report.part("driver by its path", driver_by_path, kansoku, programs[0], out)


if __name__ == "__main__":
    kit.run(main)
