#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rank.py LIBRARY ID_FILE GO_FILE PLAN: a rank of a job on the GPU; RANK and WORLD_SIZE say which. LIBRARY is rank.cu.

PLAN is a list of phases, NAME:COUNT, divided by commas; a phase of another rank is RANK/NAME:COUNT.
    train:N      steps with a collective each
    graph:N      steps that are one launch of a graph
    evaluate:N   batches of other, longer and larger kernels
    long:1       one launch of a kernel of its own
    save:N       copies N MB to the host
    host:S       the host computes for S seconds, the device is idle
    lock:1       waits for ever for a lock
    signal:1     stops itself
    until:1      trains until the file GO_FILE.until exists
    skip:1       leaves out the collective of the next step
Each phase is a line with its boot time. The first phase begins when GO_FILE exists."""
import ctypes
import os
import signal
import sys
import threading
import time

RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
ROUNDS = 40


class Job:
    def __init__(self, path, until_file):
        self.device = ctypes.CDLL(path)
        self.until_file = until_file
        self.skips = 0

    def wait_for_device(self):
        self.device.rank_wait()

    def train_step(self):
        self.device.rank_compute(ROUNDS)
        if self.skips:
            self.skips -= 1
        else:
            self.device.rank_reduce()
        self.device.rank_update(ROUNDS)
        self.wait_for_device()

    def train(self, count):
        for _ in range(count):
            self.train_step()

    def graph(self, count):
        for _ in range(count):
            self.device.rank_graph(ROUNDS)
            self.wait_for_device()

    def evaluate(self, count):
        for _ in range(count):
            self.device.rank_evaluate(20 * ROUNDS)
            self.wait_for_device()

    def long(self, count):
        for _ in range(count):
            self.device.rank_long()
            self.wait_for_device()

    def save(self, megabytes):
        self.device.rank_save(megabytes)
        self.wait_for_device()

    def host(self, seconds):
        end, value = time.monotonic() + seconds, 1
        while time.monotonic() < end:
            value = value * 16807 % 2147483647

    def lock(self, _):
        threading.Event().wait()  # allowed: the fault, a wait that never ends

    def signal(self, _):
        os.kill(os.getpid(), signal.SIGSTOP)

    def until(self, _):
        while not os.path.exists(self.until_file):
            self.train_step()

    def skip(self, count):
        self.skips += count


def main():
    library, id_file, go_file, plan = sys.argv[1:]
    job = Job(library, go_file + ".until")
    job.device.rank_open(RANK, RANKS, id_file.encode())
    print(f"{RANK} open {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}", flush=True)
    while not os.path.exists(go_file):
        time.sleep(0.01)  # allowed: the pause of a poll loop
    for phase in plan.split(","):
        whose, _, rest = phase.rpartition("/")
        name, count = rest.split(":")
        if whose and int(whose) != RANK:
            continue
        print(f"{RANK} {name} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}", flush=True)
        getattr(job, name)(int(count))
    print(f"{RANK} done {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}", flush=True)


main()
