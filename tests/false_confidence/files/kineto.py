# SPDX-License-Identifier: Apache-2.0
"""Writes a timeline as PyTorch's profiler does."""
import gzip
import json
import os

from files.timeline import Job, Model, Rank, train

CATEGORIES = {"operator": "cpu_op", "range": "user_annotation"}


def metadata(rank):
    def named(pid, tid, kind, args):
        return {"name": kind, "ph": "M", "ts": round(rank.begin, 3), "pid": pid, "tid": tid, "args": args}
    for pid, label in ((rank.pid, "CPU"), (rank.device, f"GPU {rank.device}")):
        yield named(pid, 0, "process_name", {"name": "python"})
        yield named(pid, 0, "process_labels", {"labels": label})
    yield named(rank.pid, rank.thread, "thread_name", {"name": f"thread {rank.thread} (python)"})
    yield named(rank.pid, rank.autograd, "thread_name", {"name": f"thread {rank.autograd} (pt_autograd_0)"})
    for stream in sorted(rank.free):
        yield named(rank.device, stream, "thread_name", {"name": f"stream {stream} "})


def args_of(rank, event, at):
    more = event.more
    if event.kind == "call":
        return {"External id": more["external"], "cbid": 211, "correlation": more["correlation"]}
    if event.kind == "operator":
        args = {"External id": more["external"], "Record function id": 0, "Ev Idx": at}
        if more["dims"]:
            args |= {"Input Dims": more["dims"], "Input type": ["c10::BFloat16"] * len(more["dims"])}
        if "elements" in more:
            args |= {"Collective name": "allreduce", "In msg nelems": more["elements"], "Group size": rank.world, "dtype": "BFloat16"}
        return args
    if event.kind == "range":
        return {"External id": 500_000 + at, "Record function id": 0, "Ev Idx": at}
    args = {"External id": more["external"], "queued": 0, "device": rank.device, "context": 1, "stream": event.lane,
            "correlation": more["correlation"]}
    if event.kind == "copy":
        return args | {"bytes": more["bytes"], "memory bandwidth (GB/s)": more["gb_per_s"]}
    args |= {"registers per thread": 168, "shared memory": 98304, "blocks per SM": 7.75, "warps per SM": 62.06, "grid": list(more["grid"]),
             "block": [128, 1, 1], "est. achieved occupancy %": 25}
    if "node" in more:
        args |= {"graph node id": more["node"], "graph id": 2}
    if "collective" in more:
        args |= {"Collective name": more["collective"].replace("_", ""), "In msg nelems": more["elements"], "Out msg nelems": more["elements"],
                 "Group size": rank.world, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
                 "Process Group Description": "default_pg", "Process Group Ranks": str(list(range(rank.world)))}
    return args


def events(rank, shift_us=0.0):
    """Trace events in the order of a profiler: operators and calls by time, the device's behind."""
    made = list(metadata(rank))
    categories = CATEGORIES | {"call": rank.vendor.runtime, "kernel": rank.vendor.kernel, "copy": rank.vendor.memcpy}
    for at, event in enumerate(rank.events):
        on_device = event.kind in ("kernel", "copy")
        begin_ns, end_ns = round((event.begin + shift_us) * 1e3), round((event.begin + event.us + shift_us) * 1e3)
        made.append({"ph": "X", "cat": categories[event.kind], "name": event.name, "pid": rank.device if on_device else rank.pid, "tid": event.lane,
                     "ts": begin_ns / 1e3, "dur": (end_ns - begin_ns) / 1e3, "args": args_of(rank, event, at)})
    end = max(event.begin + event.us for event in rank.events) + shift_us
    return [*made, {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": round(end, 3)}]


def trace(rank, is_distributed=True, shift_us=0.0):
    made = {"schemaVersion": 1, "deviceProperties": [{
        "id": rank.device, "name": rank.vendor.device, "totalGlobalMem": 84_929_347_584, "computeMajor": 9, "computeMinor": 0,
        "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "warpSize": 32, "numSms": 132}]}
    if is_distributed and rank.world > 1:
        made["distributedInfo"] = {"backend": rank.vendor.library, "rank": rank.rank, "world_size": rank.world, "pg_count": 1, "pg_config": [{
            "pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": rank.world, "ranks": list(range(rank.world))}]}
    return made | {"record_shapes": 1, "with_stack": 0, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1_729_000_000_000_000_000,
                   "traceEvents": events(rank, shift_us), "traceName": "trace.json"}


def save(path, content):
    """`content`: bytes, text, or what becomes JSON; .gz as its name says, unless it is already."""
    content = content if isinstance(content, (bytes, str)) else json.dumps(content, separators=(",", ":"))
    content = content.encode() if isinstance(content, str) else content
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        is_to_pack = path.endswith(".gz") and not content.startswith(b"\x1f\x8b")
        file.write(gzip.compress(content, 1, mtime=0) if is_to_pack else content)


def new_ranks(world, seed, **options):
    return [Rank(rank, world, seed=seed, **options) for rank in range(world)]


def profiles(world=1, seed=1, only=None, name="rank-{}.pt.trace.json", edit=None, raw=None, run=None, model=Model(), models=None,
             is_distributed=True, of=None, prepare=None, **job):
    """Gives what writes one profile a rank. `run`: does the work instead of training; `edit`: changes (trace, rank) in place; `raw`: the bytes of
    a trace, as they are saved; `only`: ranks whose files are there; `of`: options of each Rank; `prepare`: of each before the job."""
    def make(folder):
        ranks = new_ranks(world, seed, **(of or {}))
        for rank in ranks if prepare else ():
            prepare(rank)
        if run:
            run(ranks)
        else:
            train(ranks, Job(**job), model, models)
        for rank in ranks:
            if only is not None and rank.rank not in only:
                continue
            made = trace(rank, is_distributed)
            if edit:
                edit(made, rank.rank)
            path = os.path.join(folder, name.format(rank.rank))
            save(path, raw(json.dumps(made).encode(), rank.rank) if raw else made)
    return make


def each(trace_of, category):
    return [event for event in trace_of["traceEvents"] if event.get("cat") == category]


def without_args(*names):
    """An edit: these arguments are in no event."""
    def edit(made, _rank):
        for event in made["traceEvents"]:
            for name in names:
                event.get("args", {}).pop(name, None)
    return edit


def recategorised(**categories):
    """An edit: by the present category, with _ for what no keyword may be."""
    def edit(made, _rank):
        for event in made["traceEvents"]:
            event["cat"] = categories.get(event["cat"], event["cat"]) if "cat" in event else None
            if event["cat"] is None:
                del event["cat"]
    return edit


def with_runs(*runs):
    """One after the other, as `run`."""
    def run(ranks):
        for one in runs:
            one(ranks)
    return run
