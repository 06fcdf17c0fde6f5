# SPDX-License-Identifier: Apache-2.0
"""Faults that come from outside of the job. Each class makes what it needs on an ExitStack, which removes it again.

An injector sees every event of the job (jobs/faults.py). Most wait for `calibrated`, which carries the clean step and the
processor time of a step, turn the dose into a setting, and plant it.
"""
import math
import os
import signal
import subprocess
import time

from harness.host import RELAY, ControlGroup, Namespaces, end, need, run, run_quietly

# How often a step crosses the delayed link one after the other: gloo's ring over four ranks, with several buckets (measured).
CROSSINGS_A_STEP = 24
# A rank that sleeps between its computations gets more of a core than its weight; so much more weight makes the dose (measured).
WAKE_UP_FAVOUR = 1.5


class Injector:
    """`by = "job"`: the job does it to itself; the base of the others."""

    def __init__(self, fault, dose, world, stack):
        self.fault, self.dose, self.world, self.stack = fault, dose, world, stack
        self.rank = fault.ranks[0] if isinstance(fault.ranks, list) else None
        self.planted_at = None
        self.prepare()

    def prepare(self):
        """Makes what has to be there before the job starts; raises Impossible."""

    def environment(self):
        """Environment of the job."""
        if self.fault.inject["by"] != "job":
            return {}
        ranks = "all" if self.rank is None else ",".join(map(str, self.fault.ranks))
        out = {"FAULT": self.fault.inject["fault"], "FAULT_RANKS": ranks}
        if "step_ms" in self.fault.inject:
            out["FAULT_MS"] = str(self.dose * self.fault.inject["step_ms"])
        elif self.dose is not None:
            out["FAULT_DOSE"] = str(self.dose)
        return out

    def on_event(self, event):
        if event["event"] == "fault" or (event["event"] == "calibrated" and self.dose is not None):
            self.planted()

    def planted(self):
        if self.planted_at is None:
            self.planted_at = time.monotonic()


class Outside(Injector):
    """Plants when the faulted rank knows its clean step."""

    def on_event(self, event):
        if event["rank"] == self.rank and event["event"] == "started":
            self.started(event)
        if event["rank"] == self.rank and event["event"] == "calibrated":
            self.plant(event)
            self.planted()

    def started(self, event):
        pass

    def plant(self, event):
        raise NotImplementedError


class CpuQuota(Outside):
    """Throttled for the dose, and for half of the time in which the rank needs no processor anyway (measured)."""

    PERIOD_US = 10000

    def prepare(self):
        self.group = ControlGroup("cpu", self.stack)

    def plant(self, event):
        cpu, step = event["cpu_ms"], event["step_ms"]
        share = cpu / (cpu + self.dose * step + max(0.0, step - cpu) / 2)
        self.group.write("cpu.cfs_period_us", self.PERIOD_US)
        self.group.write("cpu.cfs_quota_us", max(1000, int(share * self.PERIOD_US)))
        self.group.write("cgroup.procs", event["pid"])


class CpuStress(Outside):
    """One busy loop on the core of the rank; its nice value gives it the processor time that makes the dose."""

    def prepare(self):
        # In one group: nice values count within a group only, and every session is one where the kernel groups by session.
        self.group = ControlGroup("cpu", self.stack)

    def plant(self, event):
        core = self.fault.inject["env"]["CPUS"].split(",")[self.rank]
        weight = WAKE_UP_FAVOUR * self.dose * event["step_ms"] / event["cpu_ms"]
        nice = -round(math.log(weight, 1.25))
        command = ["nice", "-n", str(max(-20, min(19, nice))), "taskset", "-c", core, "/usr/bin/python3", "-c", "while True: pass"]
        loop = subprocess.Popen(command, start_new_session=True)
        self.stack.callback(end, loop)
        for pid in (event["pid"], loop.pid):
            self.group.write("cgroup.procs", pid)


class OutsideLoad(Injector):
    """Two busy loops beside the job. Their weight against that of the ranks, in one group, makes the dose roughly."""

    def on_event(self, event):
        if event["event"] == "calibrated" and self.planted_at is None:
            for _ in range(2):
                nice = 5 if self.dose < 0.5 else 0
                loop = subprocess.Popen(["nice", "-n", str(nice), "/usr/bin/python3", "-c", "while True: pass"], start_new_session=True)
                self.stack.callback(end, loop)
            self.planted()


class OneCore(Injector):
    """The ranks inherit an affinity to the first processor."""

    def environment(self):
        return {"CPUS": ",".join(["0"] * self.world)}

    def on_event(self, event):
        if event["event"] == "calibrated":
            self.planted()


class MemoryLimit(Outside):
    """The rank is in the group from its start, so that its data set is charged to it; the limit comes later.

    There is no swap to rely on: what the rank has allocated stays, and `left_mb` are left for the pages of its data set.
    """

    def prepare(self):
        self.group = ControlGroup("memory", self.stack)

    def started(self, event):
        self.group.write("cgroup.procs", event["pid"])

    def plant(self, event):
        anonymous = self.group.statistic("memory.stat", "total_rss")
        self.group.write("memory.limit_in_bytes", anonymous + (self.fault.inject["left_mb"] << 20))


class Signal(Outside):
    def plant(self, event):
        os.kill(event["pid"], signal.Signals[self.fault.inject["signal"]])


class RankNamespaces(Namespaces):
    """One for each rank, which finds its peers by these variables."""

    def environment(self):
        return {"NETNS": ",".join(self.names), "GLOO_SOCKET_IFNAME": "eth0", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}


class Network(Injector):
    """Every rank in a namespace of its own, joined by veth pairs and a bridge."""

    def prepare(self):
        self.spaces = RankNamespaces(self.world, self.stack)
        bridge = f"kf{os.getpid()}b"
        self.stack.callback(run_quietly, "ip", "link", "del", bridge)
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
        for rank, name in enumerate(self.spaces.names):
            # With its namespace the pair would vanish too, but later: the next run would find its name taken.
            self.stack.callback(run_quietly, "ip", "link", "del", self.host_end(rank))
            run("ip", "link", "add", self.host_end(rank), "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", self.host_end(rank), "master", bridge, "up")
            run("ip", "-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")

    @staticmethod
    def host_end(rank):
        return f"kf{os.getpid()}v{rank}"

    def environment(self):
        return self.spaces.environment()


class LinkRate(Network, Outside):
    def plant(self, event):
        bytes_a_step = 2 * (self.world - 1) / self.world * event["gradient_bytes"]  # gloo's ring
        rate = f"{int(8 * bytes_a_step / (self.dose * event['step_ms'] / 1000))}bit"
        bucket = ["tbf", "rate", rate, "burst", "32kb", "latency", "400ms"]
        run("tc", "-n", self.spaces.names[self.rank], "qdisc", "add", "dev", "eth0", "root", *bucket)
        run("tc", "qdisc", "add", "dev", self.host_end(self.rank), "root", *bucket)


class LinkDelay(Outside):
    def prepare(self):
        self.spaces = RankNamespaces(self.world, self.stack)
        need(os.path.exists("/dev/net/tun"), "no /dev/net/tun")
        self.relay = subprocess.Popen(["/usr/bin/python3", RELAY, *self.spaces.names], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.stack.callback(end, self.relay)
        need(self.relay.stdout.readline() == "ready\n", "relay.py cannot open its devices")

    def environment(self):
        return self.spaces.environment()

    def plant(self, event):
        self.relay.stdin.write(f"{self.rank} {self.dose * event['step_ms'] / 1000 / CROSSINGS_A_STEP}\n")
        self.relay.stdin.flush()


INJECTORS = {"job": Injector, "outside_load": OutsideLoad, "one_core": OneCore, "network": Network, "cpu_quota": CpuQuota, "cpu_stress": CpuStress, "memory_limit": MemoryLimit,
             "signal": Signal, "link_rate": LinkRate, "link_delay": LinkDelay}
# What a fault file must say for an injector, besides `by`.
SETTINGS = {"job": ("fault",), "memory_limit": ("left_mb",), "signal": ("signal",), "cpu_stress": ("env",)}
