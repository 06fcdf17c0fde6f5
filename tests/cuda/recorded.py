# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share: programs built and recorded, slices of a recording, the executor's log of operations."""
import bisect
import collections
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "proto")]
import check_trace  # noqa: E402
import kit  # noqa: E402

# By category of a recording: what the executor calls such an operation.
OPERATIONS = {"kernel": ("kernel",), "gpu_memcpy": ("copy_HtoD", "copy_DtoH", "copy_DtoD", "copy_HtoH"), "gpu_memset": ("set",), "cuda_graph": ("graph",),
              "gpu_host_function": ("host_function",), "gpu_wait": ("value_wait", "value_write")}

Slice = collections.namedtuple("Slice", "track category name begin end args order")  # order: of the begin, in the file
Recording = collections.namedtuple("Recording", "slices names pids tids counters metadata")  # names, processes and threads of tracks; (order, track, value) of counters
Operation = collections.namedtuple("Operation", "is_node what stream number ready begin end host_begin host_end bytes name")


def need_root_and_clang(clang, kansoku):
    os.environ["KANSOKU"] = os.path.abspath(kansoku)  # writes the fatbins
    try:
        kit.need_root()
        kit.need_clang(clang)
    except kit.Impossible as reason:
        print(f"skipped: {reason}")
        sys.exit(77)


def build(clang, source, out):
    program = os.path.join(out, os.path.splitext(os.path.basename(source))[0])
    return kit.compile_for_device(os.environ["KANSOKU"], program, "-std=c++17", "-O2", source, "-lcuda", clang=clang)


class Reader(check_trace.Checker):
    """Slices in the order of the file: a source writes the begin and the end of an operation one after the other."""

    def __init__(self):
        super().__init__()
        self.args, self.values = [], []

    def event(self, packet, sequence):
        super().event(packet, sequence)
        names = sequence.tables["debug_annotation_names"]
        self.values.append(packet.track_event.double_counter_value or packet.track_event.counter_value)
        self.args.append({names.get(a.name_iid, a.name): getattr(a, a.WhichOneof("value")) for a in packet.track_event.debug_annotations if a.WhichOneof("value")})

    def read(self):
        opened, out = collections.defaultdict(list), []
        for (track, time, order, kind, name, category, _), args in zip(self.events, self.args):
            if kind == 1:
                opened[track].append((time, name, category, args, order))
            elif kind == 2 and opened[track]:
                begin, name, category, args, at = opened[track].pop()
                out.append(Slice(track, category, name, begin, time, args, at))
        return out


def read_recording(path):
    reader = Reader()
    with open(path, "rb") as file:
        for packet, problem in check_trace.packets_of(check_trace.load_schema(), file.read()):
            if problem:
                reader.problem(problem)
            else:
                reader.packet(packet)
    if reader.problems:
        raise kit.Wrong(f"{path}: {reader.problems}")
    pids = {}
    for uuid, track in reader.tracks.items():
        while not (track.HasField("process") or track.HasField("thread")) and track.parent_uuid in reader.tracks:
            track = reader.tracks[track.parent_uuid]
        pids[uuid] = track.process.pid or track.thread.pid
    tracks = reader.tracks.items()
    counters = [(order, track, value) for (track, _, order, kind, *_), value in zip(reader.events, reader.values) if kind == 4]
    return Recording(reader.read(), {uuid: track.name for uuid, track in tracks}, pids, {uuid: track.thread.tid for uuid, track in tracks}, counters, reader.metadata)


def read_operations(begin, pid="*"):
    """What the executor wrote of the one process that used a device, or of this one (docs/softgpu-tests.md)."""
    out = []
    for path in glob.glob(f"{begin}.{pid}"):
        with open(path, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split(" ", 10) for line in file]
        if any(len(row) != 11 for row in rows):
            raise kit.Wrong(f"{path}: not complete: {[row for row in rows if len(row) != 11]}")
        if rows and out:
            raise kit.Wrong(f"{begin}: two processes used a device")
        out += [Operation(row[0] == "node", row[1], *(int(word) for word in row[2:10]), row[10]) for row in rows]
    return out


def events_around(operations):
    """Gives the event before an operation and the one behind it. An event takes no turn: it stands at the number of the operation in front of it."""
    events = collections.defaultdict(list)
    for one in operations:
        if one.what == "event" and not one.is_node:
            events[one.stream, one.number].append(one)

    def around(one):
        before, after = events[one.stream, one.number - 1], events[one.stream, one.number]
        if not before or not after:
            raise kit.Wrong(f"no events around {one.what} {one.number} of stream {one.stream}")
        by_time = lambda event: event.host_begin
        return max(before, key=by_time), min(after, key=by_time)
    return around


def clock_maps(metadata):
    """Of each context's event clock: what stands in the recording of it."""
    return [dict(word.split("=") for word in value.split()) for key, value in sorted(metadata.items()) if key.startswith("kansoku.clock.cuda.")]


def stated_errors(recording):
    """For each slice of a device, by the order of its begin: the error that the recording states for the times around it. It stands behind them."""
    errors = [(order, value) for order, track, value in recording.counters if recording.names[track].startswith("error of device times")]
    orders = [order for order, _ in errors]
    return lambda order: errors[bisect.bisect_left(orders, order)][1]


def record(kansoku, out, label, command, settings, library=True, options=("-q", "--no-bpf")):
    """A run of the program on the software device, recorded; without the library it is only run. Gives where the recording and the log lie."""
    trace, log = os.path.join(out, label + ".pftrace"), os.path.join(out, label + ".operations")
    kit.remove_files(log)
    run = [kansoku, "run", "--softgpu", "--", *command]
    if library:
        run = kit.record_command(kansoku, trace, *options, "--cuda", "--force", of=run)
    done = subprocess.run(run, env={**os.environ, "KANSOKU_SOFTGPU_OPERATIONS": log, **settings}, capture_output=True, text=True)
    if done.returncode != 0:
        raise kit.Wrong(f"{label}: status {done.returncode}: {done.stdout[-1000:]} {done.stderr[-3000:]}")
    return trace, log


def device_streams(slices, names):
    """Track -> its operations in order, of tracks of devices; nodes of graphs are none of them."""
    out = collections.defaultdict(list)
    for one in slices:
        if names.get(one.track, "").startswith("GPU ") and one.category in OPERATIONS:
            if not (out[one.track] and is_node_of(out[one.track][-1], one)):
                out[one.track].append(one)
    return out


def is_node_of(graph, one):
    """A node has the number of its graph's launch."""
    return graph.category == "cuda_graph" and one.category in set(OPERATIONS) - {"cuda_graph"} and one.args.get("correlation") == graph.args.get("correlation")


def nodes_of(slices, graph):
    """The nodes of a graph's launch that have times, by their begin."""
    return sorted((one for one in slices if is_node_of(graph, one)), key=lambda one: (one.begin, one.end))
