#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a simulation's trace with its records: check_lanes.py SOURCE_TREE TRACE RECORDS.csv

Reads the trace with protoc's code. Executions and waits must be those of the records, slice by slice, and no two slices of one
track may overlap.
"""
import collections
import csv
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(sys.argv[1], "tests", "proto"))
import check_trace  # noqa: E402


def ns(text):
    whole, _, part = text.partition(".")
    return int(whole) * 10**9 + int(part.ljust(9, "0"))


def slices_of(path):
    """(track, category, begin, end) of every slice."""
    schema = check_trace.load_schema()
    with open(path, "rb") as trace:
        data = trace.read()
    categories, open_slices, out = {}, {}, []
    for packet, problem in check_trace.packets_of(schema, data):
        if problem:
            sys.exit(problem)
        for entry in packet.interned_data.event_categories:
            categories[entry.iid] = entry.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid] = (categories[event.category_iids[0]], packet.timestamp)
        elif event.type == schema.TrackEvent.TYPE_SLICE_END:
            category, begin = open_slices.pop(event.track_uuid)
            out.append((event.track_uuid, category, begin, packet.timestamp))
    return out


def main():
    slices = slices_of(sys.argv[2])
    with open(sys.argv[3], encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    wanted = collections.Counter(("execution", ns(r["started_s"]), ns(r["ended_s"])) for r in records)
    wanted += collections.Counter(("wait", ns(r["queued_s"]), ns(r["started_s"])) for r in records if ns(r["wait_s"]) > 0)
    found = collections.Counter(one[1:] for one in slices)
    if found != wanted:
        sys.exit(f"not the records: {list((found - wanted).items())[:3]} {list((wanted - found).items())[:3]}")
    by_track = collections.defaultdict(list)
    for track, _, begin, end in slices:
        by_track[track].append((begin, end))
    overlaps = sum(a[1] > b[0] for spans in map(sorted, by_track.values()) for a, b in zip(spans, spans[1:]))
    count = collections.Counter(one[1] for one in slices)
    print(f"executions {count['execution']} waits {count['wait']} lanes {len(by_track)} overlaps {overlaps}")
    sys.exit(1 if overlaps else 0)


main()
