# SPDX-License-Identifier: Apache-2.0
"""Dumps of PyTorch's Flight Recorder: what each rank has handed over, and how far it is."""
import json
import os
import pickle

BEGIN_NS = 1_750_000_000_000_000_000
FRAMES = [{"name": "all_reduce", "filename": "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", "line": 2810},
          {"name": "train_one_epoch", "filename": "/job/train.py", "line": 61}]


class Dump:
    """One rank's. `groups`: {id: (description, ranks)} of the groups that it is in."""

    def __init__(self, rank, groups, version="2.10"):
        self.rank, self.groups, self.version = rank, groups, version
        self.entries, self.collectives, self.transfers = [], {}, {}

    def add(self, name, group="0", state="completed", elements=4096, is_transfer=False, retired=None, at_ms=None, counts=True):
        numbers = self.transfers if is_transfer else self.collectives
        numbers[group] = numbers.get(group, 0) + (1 if counts else 0)
        created = BEGIN_NS + round(1e6 * (len(self.entries) * 30 if at_ms is None else at_ms)) + 20_000 * self.rank
        self.entries.append({
            "frames": FRAMES, "record_id": len(self.entries), "pg_id": sorted(self.groups).index(group), "process_group": (group, self.groups[group][0]),
            "collective_seq_id": self.collectives.get(group, 0), "p2p_seq_id": self.transfers.get(group, 0), "op_id": len(self.entries) + 1,
            "profiling_name": "nccl:" + name, "time_created_ns": created, "input_sizes": [[elements]], "input_dtypes": ["Float"],
            "output_sizes": [[elements]], "output_dtypes": ["Float"], "state": state, "is_p2p": is_transfer, "timeout_ms": 600_000,
            "time_discovered_started_ns": created + 1_000_000 if state != "scheduled" else None,
            "time_discovered_completed_ns": created + 5_000_000 if state == "completed" else None,
            "retired": state == "completed" if retired is None else retired})
        return self

    def many(self, count, name="all_reduce", **more):
        for _ in range(count):
            self.add(name, **more)
        return self

    def value(self):
        status = {}
        for group in self.groups:
            of_group = [entry for entry in self.entries if entry["process_group"][0] == group and not entry["is_p2p"]]
            def last(*states, entries=of_group):
                return max([entry["collective_seq_id"] for entry in entries if entry["state"] in states], default=-1)
            status[group] = {"last_enqueued_collective": last("scheduled", "started", "completed"),
                             "last_started_collective": last("started", "completed"), "last_completed_collective": last("completed")}
        config = {group: {"name": group, "desc": text, "ranks": str(ranks)} for group, (text, ranks) in self.groups.items()}
        return {"version": self.version, "pg_config": config, "pg_status": status, "entries": self.entries}

    def old(self):
        """As versions 1 have it: one number for all operations, groups as lists, no status."""
        entries = []
        for number, entry in enumerate(self.entries, 1):
            kept = ("frames", "profiling_name", "time_created_ns", "input_sizes", "output_sizes", "state", "retired", "pg_id")
            entries.append({**{key: entry[key] for key in kept}, "seq_id": number})
        return {"version": "1.5", "pg_config": {str(i): ranks for i, (_, ranks) in enumerate(self.groups.values())}, "entries": entries}


def world(count):
    return {"0": ("default_pg", list(range(count)))}


def write(folder, dumps, form="pickle", old=False):
    for dump in dumps:
        value = dump.old() if old else dump.value()
        data = pickle.dumps(value, protocol=2) if form == "pickle" else json.dumps(value).encode()
        with open(os.path.join(folder, f"nccl_trace_rank_{dump.rank}" + (".json" if form == "json" else "")), "wb") as file:
            file.write(data)
