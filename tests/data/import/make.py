#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small traces in other tools' formats into a folder: make.py FOLDER. Nothing in them is random.

  loader.json          a profile of one rank; 4 of 10 ms a step pass in the data loader
  rank-0.json.gz ...   profiles of four ranks; rank 2 comes 5 ms late to every collective
  timeline.json        an operation timeline of 2 data-parallel ranks x 2 stages; rank 3 takes 3 times as long
  hang/_dump_0 ...     Flight Recorder dumps of four ranks; rank 2 never arrives
"""
import gzip
import json
import os
import pickle
import sys

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def slice_of(category, name, begin_us, duration_us, pid=1, tid=1, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": begin_us, "dur": duration_us, "args": args}


def loader():
    events = []
    for step in range(10):
        begin = step * 10_000
        events += [slice_of("user_annotation", f"ProfilerStep#{step}", begin, 10_000), slice_of("user_annotation", LOADER, begin, 4_000),
                   slice_of("cpu_op", "aten::conv2d", begin + 4_000, 6_000), slice_of("kernel", "sgemm", begin + 4_000, 6_000, 0, 7)]
    return {"schemaVersion": 1, "traceEvents": events}


def late_rank(rank):
    events = []
    for step in range(20):
        begin = rank * 777_000 + step * 20_000
        work = 15_000 if rank == 2 else 10_000
        events += [slice_of("user_annotation", f"ProfilerStep#{step}", begin, 20_000), slice_of("kernel", "sgemm", begin, work, 0, 7),
                   slice_of("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin + work, 20_000 - work, 0, 7)]
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}, "traceEvents": events}


def timeline():
    """All forward computations, then all backward ones; 4 micro-batches, 3 steps; a transfer takes no time."""
    events = []
    for data in range(2):
        events.append({"ph": "M", "name": "process_name", "pid": data, "args": {"name": f"DP rank {data}"}})
        for stage in range(2):
            events.append({"ph": "M", "name": "thread_name", "pid": data, "tid": 5 * (2 * data + stage),
                           "args": {"name": f"PP rank {stage}, TP rank 0"}})
    begin = 0
    for step in range(3):
        ends = []
        for data in range(2):
            free, done = [begin, begin], {}

            def add(name, stage, seq, start, duration, data=data, step=step):
                events.append(slice_of("", name, start, duration, data, 5 * (2 * data + stage), step=step, seq_id=seq))

            for way, order, base in (("forward", (0, 1), 1000), ("backward", (1, 0), 2000)):
                for place, stage in enumerate(order):
                    for seq in range(4):
                        start = free[stage]
                        if place == 1:
                            start = max(start, done[way, seq])
                            add(f"{way}-send", order[0], seq, start, 0)
                            add(f"{way}-recv", stage, seq, start, 0)
                        duration = base * (3 if (data, stage) == (1, 1) else 1)
                        add(f"{way}-compute", stage, seq, start, duration)
                        free[stage] = done[way, seq] = start + duration
            ends += free
        begin = max(ends)
        for data in range(2):
            for stage in range(2):
                events.append(slice_of("", "grads-reduce-scatter", begin, 500, data, 5 * (2 * data + stage), step=step, seq_id=0))
        begin += 500
    return {"traceEvents": events}


def dump(rank):
    entry = {"record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 5, "p2p_seq_id": 0, "op_id": 5,
             "profiling_name": "nccl:all_reduce", "time_created_ns": 1_754_500_000_000_000_000, "input_sizes": [[4]],
             "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "scheduled", "retired": False,
             "timeout_ms": 180_000, "is_p2p": False, "frames": [{"name": "step", "filename": "train.py", "line": 40}]}
    if rank == 2:
        entry = dict(entry, collective_seq_id=4, op_id=4, state="completed", frames=[{"name": "load", "filename": "data.py", "line": 7}])
    return {"version": "2.9", "nccl_version": "2.27.3", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {"0": {"last_enqueued_collective": entry["collective_seq_id"], "last_started_collective": -1,
                                "last_completed_collective": 4}},
            "entries": [entry]}


def main():
    folder = sys.argv[1]
    os.makedirs(os.path.join(folder, "hang"), exist_ok=True)
    for name, trace in (("loader.json", loader()), ("timeline.json", timeline())):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(trace, file)
    for rank in range(4):
        with open(os.path.join(folder, f"rank-{rank}.json.gz"), "wb") as file:
            file.write(gzip.compress(json.dumps(late_rank(rank)).encode(), mtime=0))
        with open(os.path.join(folder, "hang", f"_dump_{rank}"), "wb") as file:
            file.write(pickle.dumps(dump(rank), 2))


if __name__ == "__main__":
    main()
