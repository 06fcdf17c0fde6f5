# SPDX-License-Identifier: Apache-2.0
"""Jobs of rank.py on the software GPU, watched by Kansoku; and what `kansoku hang` says of them."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import kit
from kit import PATIENCE_S, ROOT

HERE = os.path.dirname(os.path.abspath(__file__))


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def build(kansoku, folder):
    """The library of rank.cu."""
    libs = os.path.join(os.path.dirname(os.path.realpath(kansoku)), "softgpu")
    return kit.compile_for_device(kansoku, os.path.join(folder, "librank.so"), "-std=c++17", "-O2", "-shared", "-Xcompiler", "-fPIC",
                                  os.path.join(HERE, "rank.cu"), "-I", os.path.join(ROOT, "examples/softgpu_ddp"), "-L", libs, "-l:libnccl.so.2",
                                  SOFTGPU_LIBS=libs)


class Job:
    """Ranks that run a plan, with Kansoku's library awake in each: by `cuda top` (sampled, every), or by `kansoku watch` (watch).
    `faults`: rank -> KANSOKU_SOFTGPU_FAULT. `learn`: how long `kansoku watch` learns."""

    def __init__(self, kansoku, library, folder, ranks, plan, faults=None, mode="sampled", learn="5m"):
        self.kansoku, self.folder, self.mode, self.ranks = kansoku, folder, mode, ranks
        self.learn = learn
        self.processes, self.holders, self.seen = [], [], {}
        self.log = os.path.join(folder, "log")
        for name in ("id", "go", "go.until", "log"):
            if os.path.exists(os.path.join(folder, name)):
                os.remove(os.path.join(folder, name))
        open(self.log, "w", encoding="ascii").close()
        for rank in range(ranks):
            settings = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": "29999", "KANSOKU_SOFTGPU_WORKERS": "1", "KANSOKU_SOFTGPU_LOG": self.log}
            if faults and rank in faults:
                settings["KANSOKU_SOFTGPU_FAULT"] = faults[rank]
            out = open(os.path.join(folder, f"out.{rank}"), "wb")
            self.processes.append(subprocess.Popen(
                [kansoku, "run", "--softgpu", "--devices", str(ranks), "--memory", "512M", "--cuda", "--", sys.executable,
                 os.path.join(HERE, "rank.py"), library, os.path.join(folder, "id"), os.path.join(folder, "go"), plan],
                env={**os.environ, **settings}, stdout=out, stderr=subprocess.STDOUT))
            out.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.holders:
            process.send_signal(signal.SIGINT)
        for process in self.processes:
            process.kill()
            process.wait()
        for process in self.holders:
            process.wait()

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def lines(self):
        """(rank, phase, boot time) of all phases that have begun."""
        out = []
        for rank in range(self.ranks):
            with open(os.path.join(self.folder, f"out.{rank}"), encoding="utf-8", errors="replace") as file:
                for line in file.read().splitlines():
                    words = line.split()
                    if len(words) == 3 and words[0] == str(rank) and words[2].isdigit():
                        out.append((rank, words[1], int(words[2]) / 1e9))
        return out

    def began(self, phase):
        return {rank: at for rank, name, at in self.lines() if name == phase}

    def wait(self, is_done, what, patience_s=PATIENCE_S):
        kit.wait_for(is_done, f"{what}; see {self.folder}", patience_s, 0.005)

    def start(self):
        """Once all ranks are open, their libraries are woken, and the plan begins."""
        self.wait(lambda: len(self.began("open")) == self.ranks, "ranks that open their devices")
        every = ["--every"] if self.mode == "every" else []
        if self.mode == "watch":
            self.watch()
        for pid in self.pids if self.mode != "watch" else []:
            self.holders.append(subprocess.Popen([self.kansoku, "cuda", "top", "-p", str(pid), "--json", *every], stdout=subprocess.DEVNULL))
        self.wait(lambda: all(process["every_n"] and "asleep" not in process["why"] for process in self.hang()["processes"]),
                  "libraries that are awake")
        open(os.path.join(self.folder, "go"), "w", encoding="ascii").close()
        return now()

    def watch(self):
        shutil.rmtree(self.state, ignore_errors=True)
        open(self.incidents_file, "w", encoding="ascii").close()
        self.holders.append(subprocess.Popen([self.kansoku, "watch", "--state", self.state, "--learn", self.learn, "-q", "--json", "--no-history",
                                              "--incidents", self.incidents_file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    @property
    def state(self):
        return os.path.join(self.folder, "state")

    def has_learnt(self):
        done = subprocess.run([self.kansoku, "watch", "--status", "--json", "--state", self.state], capture_output=True, text=True, check=False)
        jobs = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
        return any(job["name"].endswith(":29999") and job["learned"] >= 1 for job in jobs)

    def end_until(self):
        """Ends the phase `until`."""
        open(os.path.join(self.folder, "go.until"), "w", encoding="ascii").close()

    @property
    def incidents_file(self):
        return os.path.join(self.folder, "incidents.jsonl")

    def all_incidents(self):
        """What `kansoku watch` told of this job, line by line."""
        with open(self.incidents_file, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file.read().splitlines()]
        return [line for line in lines if line["job"].endswith(":29999")]

    def incidents(self):
        """Those of `kansoku watch` that are of this job and call something stuck."""
        return [line for line in self.all_incidents() if line["kind"] == "stuck_kernel" and set(line["pids"]) & set(self.pids)]

    def logged(self, word):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return word in file.read()

    def hang(self, ranks=None):
        pids = self.pids if ranks is None else [self.pids[rank] for rank in ranks]
        begin = now()
        answer = kit.answer(self.kansoku, "hang", "--json", *(word for pid in pids for word in ("-p", pid)))
        answer["took_s"] = now() - begin
        answer["at"] = now()
        return answer

    def hang_text(self):
        words = [word for pid in self.pids for word in ("-p", str(pid))]
        return subprocess.run([self.kansoku, "hang", *words], capture_output=True, text=True, check=False).stdout

    def is_over(self):
        return all(process.poll() is not None for process in self.processes)


def functions(frames):
    return [frame["function"] for frame in frames]


def in_order(wanted, frames):
    """Whether the frames' names contain those texts, in that order."""
    rest = iter(functions(frames))
    return all(any(text in name for name in rest) for text in wanted)
