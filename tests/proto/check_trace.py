#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Decodes a .pftrace with protoc's own code and Perfetto's published schema, independent of Kansoku's reader.

check_trace.py [--json] FILE: refuses fields outside the schema, references to what was never declared, ends without a
begin, times that do not fit the recording; prints what the file holds. Exit status 1 if anything is wrong.
"""
import collections
import importlib
import json
import os
import subprocess
import sys
import tempfile
import zlib

from google.protobuf.unknown_fields import UnknownFieldSet

FLAG_CLEARED = 1
BOOT_CLOCK = 6


def load_schema():
    """protoc's Python classes for perfetto_subset.proto, made in a folder of their own."""
    folder = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["protoc", f"--proto_path={folder}", f"--python_out={out}", "perfetto_subset.proto"], check=True)
        sys.path.insert(0, out)
        return importlib.import_module("perfetto_subset_pb2")


def packets_of(schema, data):
    """Every packet, compressed ones opened."""
    trace = schema.Trace()
    trace.ParseFromString(data)
    for packet in trace.packet:
        if packet.HasField("compressed_packets"):
            if len(packet.compressed_packets) >= 512 * 1024:
                yield None, "a compressed packet of 512 KB or more"
            inner = schema.Trace()
            inner.ParseFromString(zlib.decompress(packet.compressed_packets))
            for one in inner.packet:
                yield one, ""
        else:
            yield packet, ""


def unknown_fields(message):
    """The numbers of fields that the schema does not have, at any depth."""
    found = [field.field_number for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is not None:
            children = value if field.label == field.LABEL_REPEATED else [value]
            for child in children:
                found += unknown_fields(child)
    return found


class Sequence:
    """The incremental state of one packet sequence."""

    def __init__(self):
        self.tables = collections.defaultdict(dict)
        self.default_clock = BOOT_CLOCK
        self.clocks = {}


class Checker:
    """Walks the packets in file order."""

    def __init__(self):
        self.problems = []
        self.sequences = collections.defaultdict(Sequence)
        self.tracks = {}
        self.labels = {}
        self.open = collections.defaultdict(list)
        self.slices = collections.defaultdict(lambda: collections.defaultdict(lambda: {"count": 0, "unended": 0, "deepest": 0}))
        self.tags = collections.defaultdict(list)  # sequence numbers of issued collectives, by thread
        self.instants = collections.Counter()  # by category
        self.instant_names = collections.Counter()
        self.metadata = {}  # the last value of each key
        self.losses = {}  # likewise
        self.native = collections.Counter()
        self.python = collections.Counter()  # samples in which a function is on the stack
        self.samples = self.switches = self.wakes = self.counters = 0
        self.events = []  # (track, time, order, event)

    def problem(self, text):
        if len(self.problems) < 20:
            self.problems.append(text)

    def packet(self, packet):
        sequence = self.sequences[packet.trusted_packet_sequence_id]
        if packet.sequence_flags & FLAG_CLEARED:
            self.sequences[packet.trusted_packet_sequence_id] = sequence = Sequence()
        unknown = unknown_fields(packet)
        if unknown:
            self.problem(f"fields that the schema does not have: {sorted(set(unknown))}")
        self.declarations(packet, sequence)
        if packet.HasField("track_event"):
            self.event(packet, sequence)
        if packet.HasField("perf_sample"):
            self.samples += 1
            stack = sequence.tables["callstacks"].get(packet.perf_sample.callstack_iid)
            if stack is None:
                self.problem("a sample of an undeclared call stack")
            elif stack and packet.perf_sample.HasField("cpu"):
                self.native[stack[-1]] += 1
            else:
                self.python.update(set(stack))
        for event in packet.ftrace_events.event:
            self.switches += event.HasField("sched_switch")
            self.wakes += event.HasField("sched_wakeup") or event.HasField("sched_waking")

    def declarations(self, packet, sequence):
        if packet.trace_packet_defaults.timestamp_clock_id:
            sequence.default_clock = packet.trace_packet_defaults.timestamp_clock_id
        boot = [c.timestamp for c in packet.clock_snapshot.clocks if c.clock_id == BOOT_CLOCK]
        for clock in packet.clock_snapshot.clocks:
            sequence.clocks[clock.clock_id] = boot[0] - clock.timestamp if boot else 0
        for field, entries in packet.interned_data.ListFields():
            for entry in entries:
                if field.name == "frames" and entry.function_name_id not in sequence.tables["function_names"]:
                    self.problem("a frame of an undeclared function")
                if field.name == "callstacks":
                    for frame in entry.frame_ids:
                        if frame not in sequence.tables["frames"]:
                            self.problem("a call stack of an undeclared frame")
                sequence.tables[field.name][entry.iid] = self.value(sequence, field.name, entry)
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            self.tracks[descriptor.uuid] = descriptor
            if descriptor.HasField("process"):
                self.labels[descriptor.process.pid] = sorted(descriptor.process.process_labels)

    @staticmethod
    def value(sequence, table, entry):
        """What an interned entry stands for: a name, or for frames and call stacks their functions, outermost first."""
        if table == "frames":
            return sequence.tables["function_names"].get(entry.function_name_id, b"").decode(errors="replace")
        if table == "callstacks":
            return [sequence.tables["frames"].get(frame, "") for frame in entry.frame_ids]
        return getattr(entry, "name", None) or getattr(entry, "str", b"")

    def event(self, packet, sequence):
        event = packet.track_event
        clock = packet.timestamp_clock_id or sequence.default_clock
        if clock != BOOT_CLOCK and clock not in sequence.clocks:
            self.problem(f"a time of clock {clock}, which was never declared")
        time = packet.timestamp + (0 if clock == BOOT_CLOCK else sequence.clocks.get(clock, 0))
        if event.track_uuid not in self.tracks:
            self.problem(f"an event on track {event.track_uuid}, which was never declared")
        names = sequence.tables["event_names"]
        name = event.name or names.get(event.name_iid, "")
        if event.name_iid and event.name_iid not in names:
            self.problem("an event of an undeclared name")
        categories = list(event.categories)
        for iid in event.category_iids:
            if iid not in sequence.tables["event_categories"]:
                self.problem("an event of an undeclared category")
            categories.append(sequence.tables["event_categories"].get(iid, ""))
        numbers = sequence.tables["debug_annotation_names"]
        tag = next((a.uint_value for a in event.debug_annotations if numbers.get(a.name_iid) == "seq"), None)
        for annotation in event.debug_annotations:
            if annotation.name_iid and annotation.name_iid not in sequence.tables["debug_annotation_names"]:
                self.problem("an argument of an undeclared name")
        if "kansoku.meta" in categories:
            texts = {numbers.get(a.name_iid): a.string_value for a in event.debug_annotations}
            self.metadata[texts.get("key", "")] = texts.get("value", "")
        if "kansoku.loss" in categories:
            of = {numbers.get(a.name_iid): a for a in event.debug_annotations}
            if "stat" in of and "count" in of:
                self.losses[of["stat"].string_value] = of["count"].uint_value
        self.events.append((event.track_uuid, time, len(self.events), event.type, name, ",".join(categories), tag))

    def nest(self):
        """Pairs begins with ends as Perfetto does: per track, by time, an end closes the innermost open slice."""
        begin, end, instant, counter = 1, 2, 3, 4
        for track, time, _, kind, name, category, tag in sorted(self.events, key=lambda e: e[:3]):
            if kind == begin:
                entry = self.slices[category][name]
                entry["count"] += 1
                entry["unended"] += 1
                entry["deepest"] = max(entry["deepest"], len(self.open[track]))
                self.open[track].append((category, name, time))
            elif kind == end:
                if self.open[track]:
                    opened_category, opened_name, _ = self.open[track].pop()
                    if tag is not None and opened_name.startswith("c10d::"):
                        self.tags[track].append(tag)
                    self.slices[opened_category][opened_name]["unended"] -= 1
            elif kind == instant:
                self.instants[category] += 1
                self.instant_names[name] += 1
            elif kind == counter:
                self.counters += 1
            else:
                self.problem(f"an event of type {kind}")

    def report(self):
        return {
            "problems": self.problems,
            "slices": {c: dict(sorted(names.items())) for c, names in sorted(self.slices.items())},
            "sequences": [{"first": min(t), "last": max(t), "count": len(t), "distinct": len(set(t))} for t in self.tags.values()],
            "instants": dict(sorted(self.instants.items())),
            "instant_names": dict(sorted(self.instant_names.items())),
            "metadata": dict(sorted(self.metadata.items())),
            "losses": dict(sorted(self.losses.items())),
            "samples": self.samples,
            "native_leaves": dict(self.native.most_common(20)),
            "python_functions": dict(self.python.most_common(200)),
            "switches": self.switches,
            "wakes": self.wakes,
            "counters": self.counters,
            "tracks": len(self.tracks),
            "processes": {str(pid): labels for pid, labels in sorted(self.labels.items())},
        }


def main():
    arguments = [a for a in sys.argv[1:] if a != "--json"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    schema = load_schema()
    checker = Checker()
    with open(arguments[0], "rb") as trace:
        data = trace.read()
    for packet, problem in packets_of(schema, data):
        if problem:
            checker.problem(problem)
        else:
            checker.packet(packet)
    checker.nest()
    report = checker.report()
    if "--json" in sys.argv:
        print(json.dumps(report, indent=1))
    else:
        total = sum(s["count"] for names in report["slices"].values() for s in names.values())
        print(f"{total} slices, {report['samples']} samples, {report['switches']} switches, {report['tracks']} tracks")
    for text in report["problems"]:
        print(f"problem: {text}", file=sys.stderr)
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
