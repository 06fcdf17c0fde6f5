#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""causes_by_plan.py KANSOKU PLANNED OUT [ROUNDS]: issue latency, waits and causes of idle time against a program's own times.

planned.c launches, waits, allocates, loads and pauses by a plan and writes its own begin and end of each on the boot clock; the software device is
made slow by faults on demand, so that kernels, an allocation and a load take what they are told to. The executor writes when each kernel ran. The
recording knows of none of it. What has to hold whatever the machine's load:
* each call, wait, allocation and load of the recording lies within the program's own begin and end, as many and in that order;
* a kernel's recorded time contains the executor's, within the stated error of the clock's map;
* issue latency is no longer than from the program's call to the executor's begin, and no shorter than what the kernel before left of it;
* idle time by cause lies between the program's own intervals in the gaps of the device and those with its own code between its calls, within the
  stated error at both ends of each gap.
With ROUNDS it also prints how far each figure is from the program's own. Status 77: not possible here."""
import collections
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from recorded import clock_maps, events_around, read_operations, read_recording, record  # noqa: E402

FAULTS = ";".join(["kernel=hold:1+:slow=4ms", "kernel=long_one:1+:slow=30ms", "cuMemAlloc_v2:1+:slow=20ms", "cuModuleLoadData:2+:slow=20ms"])
CALLS = {"launch": "cuLaunchKernel", "wait": "cuStreamSynchronize", "alloc": "cuMemAlloc_v2", "load": "cuModuleLoadData", "free": "cuMemFree_v2"}
KINDS = {"wait": "synchronisation", "alloc": "allocation", "free": "allocation", "load": "module_load", "pause": "unknown"}

Line = collections.namedtuple("Line", "phase what begin end")


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.split() for line in file]
    return [Line(phase, what, int(begin), int(end)) for phase, what, begin, end in rows[1:]]


def device_spans(operations):
    """Of each kernel: from the event before it to the one behind it, as the executor read the boot clock there. No event can see more."""
    around, spans = events_around(operations), []
    for one in sorted((one for one in operations if one.what == "kernel"), key=lambda one: one.host_begin):
        before, after = around(one)
        spans.append((before.host_begin, after.host_begin))
    return spans


def bounds_of_idle(lines, spans):
    """Cause -> least ns, most ns, gaps: of each gap between two kernels, by what the program did in it, by its own clock.

    From the launch call of the next kernel on it is launching; before that, whatever call the program was in. Least: those intervals. Most: and the
    program's own code between its calls, which the report may charge to the call that let the queue run dry."""
    least, most, gaps = collections.Counter(), collections.Counter(), collections.Counter()
    launches = [line for line in lines if line.what == "launch"]
    for (_, begin), (end, _), launch in zip(spans, spans[1:], launches[1:]):
        if end <= begin or launch.begin <= begin:  # the next one had been launched before: no cause of the host
            continue
        inside = collections.Counter({"launching": max(0, end - launch.begin)})
        for line in lines:
            part = min(line.end, end, launch.begin) - max(line.begin, begin)
            if part > 0 and line.what in KINDS:
                inside[KINDS[line.what]] += part
        rest = end - begin - sum(inside.values())
        for cause in {*inside, "unknown"}:
            least[cause] += inside[cause]
            most[cause] += inside[cause] + rest
            gaps[cause] += 1
    return least, most, gaps


def calls_within(lines, slices):
    problems = []
    for what, entry in CALLS.items():
        own = [line for line in lines if line.what == what]
        seen = sorted((one for one in slices if one.category == "cuda" and one.name == entry), key=lambda one: one.begin)
        if len(own) != len(seen):
            problems.append(f"{entry}: {len(own)} by the program, {len(seen)} recorded")
        problems += [f"{entry} number {number}: {one.begin} to {one.end} is not within {line.begin} to {line.end}"
                     for number, (line, one) in enumerate(zip(own, seen)) if not line.begin <= one.begin <= one.end <= line.end]
    return problems


def kernels_contain(slices, kernels, error):
    seen = sorted((one for one in slices if one.category == "kernel"), key=lambda one: one.begin)
    if len(seen) != len(kernels):
        return [f"{len(kernels)} kernels by the executor, {len(seen)} recorded"], seen
    overlapping = [f"{after.name} begins before {before.name} has ended, on one stream" for before, after in zip(seen, seen[1:]) if after.begin < before.end]
    return overlapping + [f"kernel {number} {one.name}: {one.begin} to {one.end} does not contain {ran.host_begin} to {ran.host_end} within {error} ns"
            for number, (one, ran) in enumerate(zip(seen, kernels))
            if one.name != ran.name or one.begin > ran.host_begin + error or one.end < ran.host_end - error], seen


def latencies(lines, slices, seen, kernels, error):
    """Problems, and for each launch the recorded latency and the program's own."""
    launches = [line for line in lines if line.what == "launch"]
    calls = {one.args.get("correlation"): one for one in slices if one.category == "cuda" and one.name == CALLS["launch"]}
    problems, pairs = [], []
    for number, (line, one, ran) in enumerate(zip(launches, seen, kernels)):
        call = calls.get(one.args.get("correlation"))
        if call is None:
            problems.append(f"kernel {number}: no call of its number")
            continue
        latency = one.begin - call.begin
        most = ran.host_begin - line.begin + error
        least = (max(kernels[number - 1].host_end - line.end, 0) if number else 0) - error
        pairs.append((latency, ran.host_begin - line.begin))
        if not least <= latency <= most:
            problems.append(f"issue latency of kernel {number}: {latency} ns, by the program's own times {least} to {most}")
    return problems, pairs


def main(report):
    kansoku, planned, out, rounds = (kit.words(__doc__, 3, 4) + ["3"])[:4]
    kit.need_root()
    os.makedirs(out, exist_ok=True)
    own = os.path.join(out, "plan.txt")
    trace, log = record(kansoku, out, "plan", [planned, "plan", own, rounds], {"KANSOKU_SOFTGPU_FAULT": FAULTS})
    lines, operations = read_lines(own), read_operations(log)
    kernels = sorted((one for one in operations if one.what == "kernel"), key=lambda one: one.host_begin)
    recording = read_recording(trace)
    slices, clocks = recording.slices, clock_maps(recording.metadata)
    if len(clocks) != 1 or clocks[0]["restarts"] != "0":
        raise kit.Wrong(f"not one map of a clock: {clocks}")
    error = int(clocks[0]["worst_error_ns"])
    problems = calls_within(lines, slices)
    more, seen = kernels_contain(slices, kernels, error)
    problems += more
    more, pairs = latencies(lines, slices, seen, kernels, error)
    problems += more
    (device,) = kit.answer(kansoku, "cuda", "report", "--json", trace)["devices"]
    idle = {row["cause"]: row["us"] * 1e3 for row in device["idle"]}
    idle["unknown"] = idle.get("unknown", 0) + idle.pop("function", 0)
    least, most, gaps = bounds_of_idle(lines, device_spans(operations))
    for cause in sorted({*least, *idle} - {"device"}):
        told, slack = idle.get(cause, 0), 2 * error * gaps[cause]  # both ends of each gap are mapped
        print(f"idle by {cause}: {told / 1e6:.3f} ms, by the program's own times {least[cause] / 1e6:.3f} to {most[cause] / 1e6:.3f}, error {slack / 1e6:.3f}")
        if not least[cause] - slack <= told <= most[cause] + slack:
            problems.append(f"idle by {cause}: out of bounds")
    middle = lambda values: sorted(values)[len(values) // 2]
    if pairs:
        print(f"issue latency: median {middle([a for a, _ in pairs]) / 1e3:.1f} us, by the program's own times {middle([b for _, b in pairs]) / 1e3:.1f}; "
              f"the report says {device['issue_latency_us']['p50']:.1f}; early by {middle([b - a for a, b in pairs]) / 1e3:.1f}, at most {max(b - a for a, b in pairs) / 1e3:.1f}")
    waits = [(line, one) for line, one in zip([line for line in lines if line.what == "wait"],
                                             sorted((one for one in slices if one.name == CALLS["wait"]), key=lambda one: one.begin))]
    if waits:
        print(f"waits: {sum(one.end - one.begin for _, one in waits) / 1e6:.3f} ms, by the program's own times {sum(l.end - l.begin for l, _ in waits) / 1e6:.3f}; "
              f"shorter by {max((l.end - l.begin) - (one.end - one.begin) for l, one in waits) / 1e3:.1f} us at most")
    print(f"{len(lines)} lines, {len(kernels)} kernels, error of the map {error} ns")
    report.judge("plan", problems or ([] if kernels and pairs and waits else ["no kernel or no wait was compared"]))


kit.run(main)
