#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""examples/softgpu_ddp: four ranks reach the losses of one process, and each rank makes exactly the NCCL calls it should.

ddp.py BUILD_FOLDER. Calls are counted from outside, by uprobes of the kernel's own tracing on libnccl.so.2; without root or tracefs
that part says so and is left out. Exit status 77: clang 19 is missing.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import ROOT, expect  # noqa: E402

STEPS = 20
LIMIT_S = 1200  # only ranks that hang take so long
TRACING = "/sys/kernel/tracing"


def losses(folder, program, ranks):
    environment = dict(os.environ, KANSOKU=os.path.join(folder, "kansoku"), PROGRAM=program)
    out = subprocess.run([os.path.join(ROOT, "examples/softgpu_ddp/launch.sh"), str(ranks), str(STEPS)], env=environment, check=True,
                         stdout=subprocess.PIPE, text=True, timeout=LIMIT_S).stdout
    values = [float(value) for value in re.findall(r"^step \d+ loss (\S+)$", out, re.M)]
    expect(len(values) == STEPS, f"{ranks} ranks: {len(values)} losses instead of {STEPS}:\n{out}")
    return values


class Counter:
    """Calls of functions of a library by process, through an instance of the kernel's tracing."""

    def __init__(self, library, functions):
        self.instance = os.path.join(TRACING, "instances", f"kansoku-ddp-{os.getpid()}")
        self.group = f"kansoku_ddp_{os.getpid()}"
        addresses = {}
        for line in subprocess.run(["nm", "-D", library], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[2].split("@")[0] in functions:
                addresses[parts[2].split("@")[0]] = int(parts[0], 16)
        self.functions = functions
        self.lines = [f"p:{self.group}/{name} {library}:{hex(self.offset(library, address))}" for name, address in addresses.items()]
        expect(set(addresses) == set(functions), f"{library} lacks {set(functions) - set(addresses)}")

    @staticmethod
    def offset(library, address):
        headers = subprocess.run(["readelf", "-lW", library], check=True, stdout=subprocess.PIPE, text=True).stdout
        for match in re.finditer(r"LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+)", headers):
            begin, virtual, size = (int(text, 16) for text in match.groups())
            if virtual <= address < virtual + size:
                return address - virtual + begin
        raise kit.Wrong(f"{library}: nothing is loaded at {hex(address)}")

    def __enter__(self):
        for line in self.lines:
            self.change_events(line)
        os.mkdir(self.instance)
        self.write("buffer_size_kb", "1024")
        # Only what we start: others may use the library, too.
        self.write("set_event_pid", str(os.getpid()))
        self.write("options/event-fork", "1")
        self.write(f"events/{self.group}/enable", "1")
        return self

    @staticmethod
    def change_events(line):
        # Not open(): it would seek to the end, which this file does not know.
        file = os.open(os.path.join(TRACING, "uprobe_events"), os.O_WRONLY | os.O_APPEND)
        os.write(file, line.encode() + b"\n")
        os.close(file)

    def write(self, name, text):
        with open(os.path.join(self.instance, name), "w", encoding="ascii") as file:
            file.write(text)

    def counts(self):
        by_process = collections.defaultdict(collections.Counter)
        with open(os.path.join(self.instance, "trace"), encoding="utf-8", errors="replace") as file:
            for line in file:
                match = re.match(r"\s*\S.*-(\d+)\s.*: (ncc\w+|nccl\w+): \(", line)
                if match:
                    by_process[int(match.group(1))][match.group(2)] += 1
        return by_process

    def __exit__(self, *_):
        self.write(f"events/{self.group}/enable", "0")
        os.rmdir(self.instance)
        for name in self.functions:
            self.change_events(f"-:{self.group}/{name}")


def train(folder, program, counted):
    """Losses of four ranks; with `counted`, the calls that each has to make, they are counted."""
    if not counted:
        return losses(folder, program, 4)
    kit.need_root()
    kit.need(os.path.exists(os.path.join(TRACING, "uprobe_events")), "no tracefs")
    with Counter(os.path.join(folder, "softgpu/libnccl.so.2"), list(counted)) as counter:
        together = losses(folder, program, 4)
        counts = counter.counts()
    expect(sorted(counts.values(), key=str) == [counted] * 4, f"calls by process: {dict(counts)}; expected of each of 4: {counted}")
    print(f"calls of each of 4 ranks: {counted}")
    return together


def main(report):
    folder = os.path.abspath(sys.argv[1])
    kit.need_clang()
    with tempfile.TemporaryDirectory() as work:
        os.environ["KANSOKU_SOFTGPU_DIR"] = os.path.join(work, "state")
        libraries = os.path.join(folder, "softgpu")
        program = kit.compile_for_device(os.path.join(folder, "kansoku"), os.path.join(work, "train"), os.path.join(ROOT, "examples/softgpu_ddp/train.cu"),
                                         "-I", os.path.join(ROOT, "examples/softgpu"), "-L", libraries, "-l:libnccl.so.2", SOFTGPU_LIBS=libraries)
        alone = losses(folder, program, 1)
        report.judge("the loss falls", [] if alone[-1] < alone[0] / 2 else [str(alone)])
        together = None

        def counted():
            nonlocal together
            together = train(folder, program, {"ncclAllReduce": 2 * STEPS, "ncclBroadcast": 1, "ncclCommInitRank": 1, "ncclCommDestroy": 1})
        report.part("calls of NCCL", counted)
        worst = max(abs(a - b) for a, b in zip(alone, together or train(folder, program, None)))
        print(f"{STEPS} steps, loss {alone[0]:.6f} -> {alone[-1]:.6f}; 4 ranks differ by at most {worst:.1e}")
        report.judge("losses", [] if worst <= 1e-5 else [f"they differ by {worst:.1e}"])


kit.run(main)
