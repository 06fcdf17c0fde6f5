#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of an exported file, by the formulas that Holistic Trace Analysis documents: hta_test.py KANSOKU CUDA_RECORDINGS

Idle time, overlap of computation and communication, idle time by cause and queue length are derived here from the exported file alone,
and must equal those of `kansoku cuda report` on the source within 1 %. First come files with answers worked out by hand, then recordings
of training loops, then published profiles where KANSOKU_DATA names their folder.
"""
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

LIMIT = 0.01
KERNEL_WAIT_US = 0.030  # a shorter gap between kernels is their own delay


def union(events):
    """Sorted, disjoint intervals of events."""
    merged = []
    for begin, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in events):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def both(one, other):
    """The length of the instants that are in both."""
    total, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        total += max(0.0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total


def describe(values):
    """Count, mean, median and greatest, as a data frame's summary has them."""
    values = sorted(values)
    place = 0.5 * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return {"count": len(values), "mean": sum(values) / len(values), "p50": values[low] + (values[high] - values[low]) * (place - low),
            "max": values[-1]}


class Exported:
    """An exported file through the eyes of the analysis: whatever has a stream is an operation of the device."""

    def __init__(self, path):
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
        self.ops = [e for e in events if e["args"].get("stream", -1) != -1]
        numbers = {e["args"]["correlation"] for e in self.ops if "correlation" in e["args"]}
        self.launches = {e["args"]["correlation"]: e for e in events
                         if "stream" not in e["args"] and e["args"].get("correlation") in numbers and e["cat"].lower() in
                         ("cuda_runtime", "cuda_driver", "runtime")}

    def kind(self, event):
        if re.search("nccl(Dev)?Kernel", event["name"]):
            return "communication"
        return "memory" if "Memcpy" in event["name"] or "Memset" in event["name"] else "computation"

    def times(self):
        all_ops = union(self.ops)
        compute = union(e for e in self.ops if self.kind(e) == "computation")
        communication = union(e for e in self.ops if self.kind(e) == "communication")
        window = all_ops[-1][1] - all_ops[0][0]
        out = {"window_us": window, "idle_us": window - length(all_ops), "compute_us": length(compute),
               "communication_us": length(communication)}
        if communication:
            out["overlap"] = both(compute, communication) / length(communication)
        return out

    def streams(self):
        return sorted({e["args"]["stream"] for e in self.ops})

    def of_stream(self, stream):
        return sorted((e for e in self.ops if e["args"]["stream"] == stream), key=lambda e: e["ts"])

    def gaps(self, stream):
        """Idle time of a stream by what it waits for: the host, the kernel's own start, something else."""
        out = {"host_wait_us": 0.0, "kernel_wait_us": 0.0, "other_us": 0.0}
        ops = self.of_stream(stream)
        for before, op in zip(ops, ops[1:]):
            end = before["ts"] + before["dur"]
            launch = self.launches.get(op["args"].get("correlation"))
            is_late = launch is not None and launch["ts"] > end
            cause = "host_wait_us" if is_late else "kernel_wait_us" if op["ts"] - end < KERNEL_WAIT_US else "other_us"
            out[cause] += op["ts"] - end
        return out

    def queue(self, stream):
        """The number of outstanding operations, at each moment when it changes."""
        changes = []
        for op in self.of_stream(stream):
            launch = self.launches.get(op["args"].get("correlation"))
            if launch is not None:
                changes += [(launch["ts"], -1), (op["ts"], 1)]  # of equal moments the launch comes first
        waiting, series = 0, []
        for _, change in sorted(changes):
            waiting -= change
            series.append(waiting)
        return describe(series) if series else None


class Test:
    def __init__(self, kansoku, folder):
        self.kansoku, self.folder, self.failures, self.compared = kansoku, folder, [], 0

    def run(self, *arguments):
        done = subprocess.run([self.kansoku, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, 10):
            raise SystemExit(f"{' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr}")
        return done.stdout

    def equal(self, what, ours, theirs, scale=None):
        """Within 1 % of their value, or of `scale` where a part of a whole is compared."""
        self.compared += 1
        if abs(ours - theirs) > LIMIT * abs(theirs if scale is None else scale) + 1e-6:
            self.failures.append(f"{what}: {ours} here, {theirs} by the formula")

    def compare(self, source, arguments=()):
        exported = self.folder / "exported.json"
        self.run("export", "--kineto", source, "-o", exported, *arguments)
        report = json.loads(self.run("cuda", "report", "--json", source))
        if arguments:  # of one rank
            report["devices"] = [d for d in report["devices"] if d["rank"] == int(arguments[-1])]
        if len(report["devices"]) != 1:
            raise SystemExit(f"{source}: {len(report['devices'])} devices")
        device, file = report["devices"][0], Exported(exported)
        name = pathlib.Path(source).name
        times = file.times()
        for key in ("window_us", "idle_us", "compute_us"):
            self.equal(f"{name}: {key}", device[key], times[key])
        self.equal(f"{name}: communication", device["overlap"]["communication_us"], times["communication_us"])
        if "overlap" in times:
            self.equal(f"{name}: overlap", device["overlap"]["share"], times["overlap"], scale=1)
        gaps = {row["stream"]: row for row in device["gaps"]}
        queues = {row["stream"]: row["length"] for row in device["queues"] or []}
        for stream in file.streams():
            of_file = file.gaps(stream)
            for key, value in of_file.items():
                self.equal(f"{name}: stream {stream}: {key}", gaps[stream][key], value, scale=sum(of_file.values()))
            series = file.queue(stream)
            for key, value in (series or {}).items():
                self.equal(f"{name}: stream {stream}: queue {key}", queues[stream][key], value)
        return device, file

    def hand_computed(self):
        """Two streams; the times are in the comments."""
        def x(category, name, ts, dur, pid, tid, **args):
            return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}

        events = [{"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}}]
        ops = [("k1", 0, 100, 150, 7), ("ncclDevKernel_AllReduce_Sum_f32_RING(x)", 110, 200, 150, 20), ("k2", 120, 300, 100, 7),
               ("k3", 500, 520, 80, 7)]
        for number, (name, launch, begin, duration, stream) in enumerate(ops):
            events.append(x("cuda_runtime", "cudaLaunchKernel", launch, 5, 500, 500, correlation=number))
            events.append(x("kernel", name, begin, duration, 0, stream, correlation=number, device=0, stream=stream))
        source = self.folder / "hand.json"
        source.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        device, file = self.compare(source)
        # busy 100..400 and 520..600; computing 100..250, 300..400, 520..600; communicating 200..350
        expected = {"window_us": 500, "idle_us": 120, "compute_us": 330, "communication_us": 150}
        for key, value in expected.items():
            self.equal(f"by hand: {key}", file.times()[key], value)
        self.equal("by hand: overlap", file.times()["overlap"], 100 / 150)
        # stream 7: 250..300 was launched at 120, in time; 400..520 was launched at 500, too late
        self.equal("by hand: waits for the host", device["gaps"][0]["host_wait_us"], 120)
        self.equal("by hand: other waits", device["gaps"][0]["other_us"], 50)
        # stream 7: 1 0 1 0 1 0 at 0 100 120 300 500 520
        self.equal("by hand: mean queue", device["queues"][0]["length"]["mean"], 0.5)
        self.equal("by hand: longest queue", device["queues"][0]["length"]["max"], 1)


def published():
    """Profiles of others."""
    data = os.environ.get("KANSOKU_DATA")
    kit.need(data, "KANSOKU_DATA is not set")
    profiles = pathlib.Path(data) / "profiles"
    found = [*sorted((profiles / "kineto").glob("*.json.gz")), *sorted((profiles / "hta").glob("*.json.gz"))]
    kit.need(found, f"there are none in {profiles}")
    return found


def has_device_work(path):
    return '"stream"' in gzip.open(path, "rt").read()


def main(report):
    kansoku, recordings = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test = Test(kansoku, folder)
        test.hand_computed()
        subprocess.run([recordings, name], check=True)
        for recording in sorted(folder.glob("*.pftrace")):
            ranks = range(4) if recording.stem == "four_ranks" else [None]
            for rank in ranks:
                test.compare(recording, () if rank is None else ("--rank", str(rank)))
        report.judge("recordings", list(test.failures) or ([] if test.compared >= 50 else [f"only {test.compared} figures were compared"]))
        test.failures.clear()
        report.part("published profiles", lambda: [test.compare(profile) for profile in filter(has_device_work, published())] and test.failures)
        print(f"{test.compared} figures compared")


if __name__ == "__main__":
    kit.run(main)
