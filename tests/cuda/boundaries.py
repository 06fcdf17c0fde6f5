#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""boundaries.py KANSOKU SOFTGPU_CLANG SAMPLES OUT: under the model clock each begin and end is the executor's.

Samples run under `kansoku record --cuda` with the model clock; the executor writes when each operation was first in its stream (ready), when it
took its engine (begin), and when it ended. An operation's time lies between two events of its stream, so the recording has to say ready and end.
The cost of an event: none in the model's time, as an event is a part that takes 0 ns; what is left is the rounding of cuEventElapsedTime, a float of
milliseconds, and none of that within 16 ms (bound_ns). From ready to begin lies the latency of the model (docs/softgpu-clock.md) and, if the engine
is taken, the wait for it: no event can see either. With and without the library the executor's own times have to be the same. Operations of two
streams overlap in the recording exactly where they do in the executor's list. Figures that need one clock are unknown. Status 77: not possible here."""
import collections
import itertools
import json
import os
import re
import struct
import subprocess
import sys

from recorded import HERE, OPERATIONS, build, device_streams, need_root_and_clang, nodes_of, read_operations, read_recording, record

SAMPLES = ["streams", "graphs", "nbody", "vector_add", "reduction", "overlap", "chains"]
LATENCY_NS = {"kernel": 3000, "set": 3000, "graph": 3000, "copy_HtoD": 4000, "copy_DtoH": 4000, "copy_DtoD": 4000, "copy_HtoH": 4000}
UNKNOWN = ["issue latency", "queue length", "void share", "idle time by cause", "launch-bound stretches"]


def bound_ns(time_ns):
    """By how much a recorded time may be off that lies so long after the first reading of the clock.

    The executor has whole ns. The library learns them as floats of milliseconds and rounds each to the nearest whole ns: that is the only rounding,
    as all else adds whole numbers. A float has 24 bits, so one of x ns is off by x / 2^24 at most: rounded, by nothing below 16 ms (where half a
    step is 0.48 ns), else by x / 2^23 at most. A device time is a sum of such: from the first base of the clock to the next ones, from the newest
    to the begin, from there to the end or to a node. The parts add up to the whole time, and so do their bounds."""
    return 0 if time_ns < 16_000_000 else time_ns >> 23


def check_bound():
    """The bound itself, at the edges of every step of a float up to a minute and in between."""
    for power in range(4, 17):
        for ns in {(1_000_000 << power) + each for each in range(-3, 4)} | {(1_000_000 << power) * part // 97 for part in range(1, 97)}:
            ms = struct.unpack("f", struct.pack("f", ns * 1e-6))[0]
            if abs(int(ms * 1e6 + 0.5) - ns) > bound_ns(ns):
                sys.exit(f"{ns} ns are {ms} ms, which is further off than {bound_ns(ns)} ns")


def shift_of(points):
    """The recorded time less the executor's: times count from the first reading of the clock, so it is one number for all of the recording. One that
    is within the bounds of all points, where there is such a one."""
    low, high = max(seen - true - bound_ns(true) for seen, true in points), min(seen - true + bound_ns(true) for seen, true in points)
    apart = sorted(seen - true for seen, true in points)
    return low if low <= high else apart[len(apart) // 2]


def plain(operations):
    """Stream -> what a recording has a slice of, in order."""
    out = collections.defaultdict(list)
    for one in operations:
        if not one.is_node and one.what != "event":
            out[one.stream].append(one)
    return out


def is_same(one, ran):
    if "chain" in one.args:
        name = one.name.removeprefix("chain: ")
        return ran.what == "kernel" and ran.name.startswith(f"_Z{len(name)}{name}")
    return ran.what in OPERATIONS[one.category] and (one.category != "kernel" or one.args.get("full_name", one.name) == ran.name)


def in_chains(slices, ran):
    """The executor's operations, with those of a recorded chain as one: from its first launch until its last has ended."""
    out, left = [], list(ran)
    for one in slices:
        of, left = left[:one.args.get("chain", 1)], left[one.args.get("chain", 1):]
        if not of or any(each.what != of[0].what for each in of):
            return []
        out.append(of[0]._replace(end=of[-1].end))
    return out + left


def parted(pairs, ran, operations):
    """Events between the launches of a chain: they would end the overlap."""
    inner = set()
    for of, by in pairs:
        left = ran[by[0].stream]
        for one in of:
            count = one.args.get("chain", 1)
            inner |= {(left[0].stream, number) for number in range(left[0].number, left[count - 1].number)}
            left = left[count:]
    return [f"an event behind launch {one.number} of stream {one.stream}, within a chain" for one in operations
            if one.what == "event" and not one.is_node and (one.stream, one.number) in inner]


def pair_streams(recorded, executed):
    """Recorded tracks and the executor's streams with the same operations: of several such, those whose times fit."""
    pairs, left = [], dict(executed)
    for track, slices in recorded.items():
        chained = {stream: in_chains(slices, ran) for stream, ran in left.items()}
        fits = [stream for stream, ran in chained.items() if len(ran) == len(slices) and all(map(is_same, slices, ran))]
        if not fits:
            return None, f"no stream of the executor has the operations of track {track}: {[one.name for one in slices][:8]}"
        course = [one.end - slices[0].begin for one in slices]
        unlike = lambda stream: sum(abs(ran.end - chained[stream][0].ready - end) for ran, end in zip(chained[stream], course))
        best = min(fits, key=lambda stream: (unlike(stream), stream))
        pairs.append((slices, chained[best]))
        left.pop(best)
    return pairs, None if not left else f"{len(left)} streams of the executor are not in the recording"


def overlaps(spans):
    """Pairs of operations of different streams that overlap, and for how long."""
    return {(a, b): min(spans[a][1], spans[b][1]) - max(spans[a][0], spans[b][0])
            for a, b in itertools.combinations(sorted(spans), 2) if a[0] != b[0] and spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]}


def nodes_in(operations, graph):
    """What ran in this launch of a graph, but for events."""
    return [one for one in operations if one.is_node and (one.stream, one.number) == (graph.stream, graph.number) and one.what != "event"]


def unlike_nodes(recorded, executed, shift, figures):
    """A launch whose nodes have times at all has one for each, and each ends when the executor says."""
    if not recorded:
        return []
    figures["graphs with nodes"] += 1
    seen = sorted((one.end - shift, one.args.get("full_name", one.name) if one.category == "kernel" else "-") for one in recorded)
    true = sorted((one.end, one.name) for one in executed)
    if len(seen) != len(true):
        return [f"{len(seen)} nodes recorded, {len(true)} ran"]
    figures["nodes"] += len(seen)
    return [f"node {name} ends at {end}: {other} at {at} by the executor" for (end, name), (at, other) in zip(seen, true)
            if name != other or abs(end - at) > bound_ns(at)]


def compare(recording, operations):
    """Problems, and figures of the comparison."""
    names, recorded = recording.names, device_streams(recording.slices, recording.names)
    problems = [f"track {names[track]}: not on a device axis" for track in recorded if not names[track].endswith(", device clock")]
    pairs, wrong = pair_streams(recorded, plain(operations))
    if wrong:
        return problems + [wrong], None
    problems += parted(pairs, plain(operations), operations)
    points = [point for of, by in pairs for one, ran in zip(of, by) for point in ((one.begin, ran.ready), (one.end, ran.end))]
    shift = shift_of(points) if points else 0
    figures, spans_seen, spans_ran = collections.Counter(), {}, {}
    for stream, (of, by) in enumerate(pairs):
        problems += [f"{after.name} begins before {before.name} has ended, on one stream" for before, after in zip(of, of[1:]) if after.begin < before.end]
        for number, (one, ran) in enumerate(zip(of, by)):
            figures["operations"] += 1
            figures["chains"] += "chain" in one.args
            for what, seen, true in (("begin", one.begin - shift, ran.ready), ("end", one.end - shift, ran.end)):
                figures["largest ns off"] = max(figures["largest ns off"], abs(seen - true))
                figures["allowed ns"] = max(figures["allowed ns"], bound_ns(true))
                if abs(seen - true) > bound_ns(true):
                    problems.append(f"{what} of {one.name} number {number} of stream {by[0].stream}: {seen} recorded, {true} by the executor")
            wait = ran.begin - ran.ready - LATENCY_NS.get(ran.what, 0)
            if wait < 0:
                problems.append(f"{ran.what} {ran.name} took its engine {-wait} ns before its latency was over")
            figures["waited for an engine"] += wait > 0
            spans_seen[stream, number], spans_ran[stream, number] = (one.begin - shift, one.end - shift), (ran.ready, ran.end)
            if ran.what == "graph":
                problems += unlike_nodes(nodes_of(recording.slices, one), nodes_in(operations, ran), shift, figures)
    seen, ran = overlaps(spans_seen), overlaps(spans_ran)
    allowed = figures["allowed ns"]
    for pair in sorted({*seen, *ran}):
        if abs(seen.get(pair, 0) - ran.get(pair, 0)) > 2 * allowed:
            problems.append(f"overlap of {pair}: {seen.get(pair, 0)} ns recorded, {ran.get(pair, 0)} by the executor")
    figures["pairs that overlap"] = sum(length > 2 * allowed for length in ran.values())
    return problems, figures


def unknown_figures(kansoku, trace):
    done = subprocess.run([kansoku, "cuda", "report", "--json", trace], capture_output=True, text=True)
    report = json.loads(done.stdout)
    state = {row["name"]: row["state"] for row in report["figures"]}
    problems = [f"{name} is {state.get(name)}, not unknown" for name in UNKNOWN if state.get(name) != "unknown"]
    problems += ["one_clock is not false"] if report["one_clock"] is not False else []
    for device in report["devices"]:
        problems += [f"{key} has a value" for key in ("issue_latency_us", "idle", "void", "launch_bound") if device.get(key)]
    return problems


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    kansoku, clang, samples, out = sys.argv[1:]
    check_bound()
    need_root_and_clang(clang, kansoku)
    os.makedirs(out, exist_ok=True)
    failed, overlapped = False, 0
    for name in SAMPLES:
        folder = next(path for path in (samples, os.path.join(samples, "..", "softgpu"), HERE) if os.path.exists(os.path.join(path, name + ".cu")))
        program = build(clang, os.path.join(folder, name + ".cu"), out)
        # One worker: where blocks act on the order of atomic operations, the model counts differently from run to run with several.
        model = {"KANSOKU_SOFTGPU_CLOCK": "model", "KANSOKU_SOFTGPU_WORKERS": "1"}
        trace, log = record(kansoku, out, name, [program], model)
        operations = read_operations(log)
        _, log = record(kansoku, out, name + "-alone", [program], model, library=False)
        alone, watched = [[[(one.what, one.ready, one.begin, one.end) for one in by] for by in plain(operations).values()] for operations in
                          (read_operations(log), operations)]
        problems, figures = compare(read_recording(trace), operations)
        if sorted(alone) != sorted(watched):
            problems.append("the executor's times differ with and without the library")
        if name == "chains" and figures and not figures["chains"]:
            problems.append("no chain was recorded")
        for problem in problems + unknown_figures(kansoku, trace):
            print(f"{name}: {problem}")
            failed = True
        if figures:
            print(f"{name}: " + ", ".join(f"{key} {value:.0f}" for key, value in figures.items()))
            overlapped += figures["pairs that overlap"]
    if not overlapped:
        print("no two streams overlapped: nothing was tested of it")
        failed = True
    return 1 if failed else 0


sys.exit(main())
