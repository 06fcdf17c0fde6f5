# SPDX-License-Identifier: Apache-2.0
"""The jobs that are watched: long training runs whose ranks lie in two network namespaces and in control groups of their own.

Ranks of the first half are in the first namespace. Between the two a veth pair carries everything; a relay in user space waits beside
it: a fault of the network turns the routes to it, and connections go on over the other path.
"""
import contextlib
import glob
import itertools
import json
import os
import subprocess
import sys
import time

from harness.host import LAUNCH, RELAY, ControlGroup, Namespaces, remove_file, run, run_quietly
from kit import ROOT, compile_for_device, expect, need, need_clang

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 90  # the longest time from the start to the first steps of all ranks
LINK, RELAYED, HOME = "10.97.0", "10.98.0", "10.99.0"  # addresses of the veth ends, of the relay's devices, and of the hosts
MTU = 60000  # few large packets: the relay shares the processors with the job
MIB = 1 << 20
JOB_NUMBERS = itertools.count()  # the groups of the job before may still be ending


def cores():
    """The first two that this process may use; a machine with one core gives it twice."""
    usable = sorted(os.sched_getaffinity(0))
    return (usable * 2)[:2]


class TwoHosts:
    """Two namespaces as two hosts: each has an address of its own, reached over the veth pair or over the relay."""

    def __init__(self, guard):
        need(os.path.exists("/dev/net/tun"), "no /dev/net/tun")
        self.guard = guard
        self.names = Namespaces(2, guard, "kw").names
        ends = [f"kw{os.getpid()}{end}" for end in "ab"]
        guard.callback(run_quietly, "ip", "link", "del", ends[0])
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for index, (name, end) in enumerate(zip(self.names, ends)):
            run("ip", "link", "set", end, "netns", name, "name", "link0", "mtu", str(MTU))
            # A bridge without ports, since an address of lo would not do: gloo takes an interface's first address.
            run("ip", "-n", name, "link", "add", "host0", "type", "bridge")
            run("ip", "-n", name, "addr", "add", f"{HOME}.{index + 1}/32", "dev", "host0")
            run("ip", "-n", name, "addr", "add", f"{LINK}.{index + 1}/24", "dev", "link0")
            for device in ("host0", "link0"):
                run("ip", "-n", name, "link", "set", device, "up")
        self.relay = subprocess.Popen(["/usr/bin/python3", RELAY, "--device", "relay0", "--subnet", RELAYED, *self.names], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        guard.watch(self.relay)
        need(self.relay.stdout.readline() == "ready\n", "relay.py cannot open its devices")
        for index in range(2):
            run(*self.route(index, "link0", LINK))

    def route(self, index, device, subnet):
        return ["ip", "-n", self.names[index], "route", "replace", f"{HOME}.{2 - index}/32", "via", f"{subnet}.{2 - index}", "dev", device,
                "src", f"{HOME}.{index + 1}"]

    def limit(self, bits_per_s):
        """Both directions; tickets that undo it."""
        tickets = []
        for name in self.names:
            tickets.append(self.guard.callback(run_quietly, "tc", "-n", name, "qdisc", "del", "dev", "link0", "root"))
            bucket = ["tbf", "rate", f"{int(bits_per_s)}bit", "burst", "128kb", "latency", "400ms"]
            run("tc", "-n", name, "qdisc", "add", "dev", "link0", "root", *bucket)
        return tickets

    def carried_bytes(self):
        """By the veth pair so far, in the busier direction."""
        counters = json.loads(run("ip", "-n", self.names[0], "-s", "-j", "link", "show", "link0"))[0]["stats64"]
        return max(counters[way]["bytes"] for way in ("rx", "tx"))

    def relay_with(self, delay_s, loss):
        """Packets of both directions are delayed and lost; tickets that undo it."""
        self.relay.stdin.write(f"0 {delay_s} {loss}\n")  # all cross both: one end is enough
        self.relay.stdin.flush()
        tickets = []
        for index in range(2):
            tickets.append(self.guard.callback(run_quietly, *self.route(index, "link0", LINK)))
            run(*self.route(index, "relay0", RELAYED))
        return tickets


class Job:
    """A running job. `ranks[i]` is the pid of rank i, `groups[controller][i]` its control group."""

    CONTROLLERS = ("cpu", "memory", "blkio")

    def __init__(self, guard, folder, world):
        self.guard, self.folder, self.world = guard, folder, world
        self.process, self.ranks, self.workers = None, [], []
        self.cores = [cores()[rank % 2] for rank in range(world)]
        self.hosts = TwoHosts(guard)
        mark = f"kansoku-watch-{os.getpid()}-{next(JOB_NUMBERS)}"
        self.groups = {controller: [ControlGroup(controller, guard, f"{mark}-r{rank}") for rank in range(world)]
                       for controller in self.CONTROLLERS}
        # For data-loader workers alone, below the group of their rank.
        own = [os.path.basename(group.path) for group in self.groups["cpu"]]
        self.worker_groups = [ControlGroup("cpu", guard, f"{name}/input") for name in own]
        os.makedirs(folder, exist_ok=True)

    def environment(self):
        half = self.world // 2
        spaces = [self.hosts.names[rank >= half] for rank in range(self.world)]
        groups = [self.groups[controller][0].path.removesuffix("0") + "{rank}" for controller in self.CONTROLLERS]
        return {**os.environ, "RANKS": str(self.world), "NETNS": ",".join(spaces), "CPUS": ",".join(map(str, self.cores)),
                "CGROUPS": ",".join(groups), "GLOO_SOCKET_IFNAME": "host0", "MASTER_ADDR": f"{HOME}.1", "MASTER_PORT": "29500",
                "FOLDER": self.folder}

    def start(self, command, environment):
        for rank in range(self.world):
            remove_file(self.steps_path(rank))
            remove_file(self.leak_path(rank))
        with open(os.path.join(self.folder, "job.log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([sys.executable, LAUNCH, *command], env={**self.environment(), **environment}, stdout=log,
                                            stderr=log, start_new_session=True)
        self.guard.watch(self.process, "SIGTERM")
        deadline = time.monotonic() + START_S
        while not all(len(self.steps(rank)) > 3 for rank in range(self.world)):
            self.check()
            need(time.monotonic() < deadline, f"the job made no steps in {START_S} s; see {self.folder}/job.log")
            time.sleep(0.2)
        self.find_processes()

    def find_processes(self):
        """Ranks are the processes of their groups that are children of the launcher, workers the ranks' children."""
        launched = children(self.process.pid)
        members = [set(map(int, group.read("cgroup.procs").split())) for group in self.groups["cpu"]]
        self.ranks = [next(pid for pid in launched if pid in member) for member in members]
        self.workers = [min(children(pid), default=None) for pid in self.ranks]
        self.cpu_begin = {pid: (time.monotonic(), cpu_seconds(pid)) for pid in self.pids()}
        self.link_begin = (time.monotonic(), self.hosts.carried_bytes())
        for worker, group in zip(self.workers, self.worker_groups):
            if worker:
                group.write("cgroup.procs", worker)

    def cpu_share(self, pid):
        """Of a core, mean since the job made its first steps."""
        since, used = self.cpu_begin[pid]
        return (cpu_seconds(pid) - used) / max(1e-3, time.monotonic() - since)

    def link_rate(self):
        """Bytes a second over the link, mean since the job made its first steps."""
        since, carried = self.link_begin
        return (self.hosts.carried_bytes() - carried) / max(1e-3, time.monotonic() - since)

    def check(self):
        need(self.process.poll() is None, f"the job has ended with status {self.process.returncode}; see {self.folder}/job.log")

    def steps_path(self, rank):
        return os.path.join(self.folder, f"rank{rank}.steps")

    def leak_path(self, rank):
        return os.path.join(self.folder, f"leak-{rank}")

    def steps(self, rank=0):
        """Ends of the steps so far, wall-clock seconds."""
        try:
            with open(self.steps_path(rank), encoding="ascii") as file:
                return [int(line) / 1e9 for line in file.read().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def disk_rate(self):
        """Bytes a second that a rank wants to read."""
        return 0

    def pids(self):
        return [pid for pid in [*self.ranks, *self.workers] if pid]


def cpu_seconds(pid):
    """Of all its threads, those that have ended too: its processor-time clock, whose number is made of the pid as clock_getcpuclockid(3) does it.
    /proc tells it in hundredths of a second, too coarse for an agent that takes some of them in ten seconds."""
    return time.clock_gettime((~pid << 3) | 2)


def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


def make_file(path, size):
    """Random bytes on the disk and not in the page cache."""
    if not os.path.exists(path) or os.path.getsize(path) != size:
        with open(path, "wb") as file:
            for _ in range(size // MIB):
                file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


class DdpJob(Job):
    """PyTorch, gloo, 4 ranks on 2 cores."""

    NAME, WORLD = "ddp", 4
    DATA_MB, TABLE_MB, LEAK_MB_S = 256, 96, 8
    STEP_BYTES = 4 * 128 << 10  # what train.py reads for a batch

    def __init__(self, guard, folder, options):
        super().__init__(guard, folder, options.get("world", self.WORLD))
        make_file(os.path.join(folder, "data.bin"), self.DATA_MB * MIB)
        for rank in range(self.world):
            make_file(os.path.join(folder, f"table-{rank}.bin"), self.TABLE_MB * MIB)
        self.start([os.path.join(HERE, "jobs/train.py")], {"LEAK_MB_S": str(self.LEAK_MB_S), **options.get("environment", {})})

    def disk_rate(self):
        last = self.steps()[-20:]
        return self.STEP_BYTES * (len(last) - 1) / (last[-1] - last[0])


class GpuJob(Job):
    """CUDA on two software devices with NCCL calls, 2 ranks. Needs clang 19 and a built kansoku."""

    NAME, WORLD = "gpu", 2
    MEMORY = "1G"

    def __init__(self, guard, folder, options):
        super().__init__(guard, folder, options.get("world", self.WORLD))
        self.kansoku = options["kansoku"]
        self.errors = itertools.cycle((48, 79, 63, 31, 94, 13, 74, 45))  # numbers of XID errors
        self.program = build_gpu_program(self.kansoku, os.path.dirname(folder))
        self.devices = os.path.join(folder, "devices")
        os.makedirs(self.devices, mode=0o700, exist_ok=True)
        remove_file(os.path.join(folder, "id"))
        command = [self.kansoku, "run", "--softgpu", "--devices", str(self.world), "--memory", self.MEMORY, "--", self.program]
        self.start([*command, "{rank}", str(self.world), folder],
                   {**self.device_environment(), "KANSOKU_SOFTGPU_WORKERS": "1", "NCCL_SOCKET_IFNAME": "host0",
                    **options.get("environment", {})})

    def device_environment(self):
        """What the agent needs too, to see these devices and no others."""
        return {"KANSOKU_SOFTGPU_DIR": self.devices, "KANSOKU_SOFTGPU_DEVICES": str(self.world)}

    def set_device(self, device, *settings):
        """Tells the software device something; see `kansoku gpu set`."""
        done = subprocess.run(self.set_command(device, *settings), capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"kansoku gpu set: {done.stderr.strip()}")

    def set_command(self, device, *settings):
        variables = [f"{name}={value}" for name, value in self.device_environment().items()]
        return ["env", *variables, self.kansoku, "gpu", "set", "--device", str(device), *map(str, settings)]


def build_gpu_program(kansoku, folder):
    """Compiles jobs/softgpu_train.cu unless that is done; returns the program's path."""
    program, source = os.path.join(folder, "softgpu_train"), os.path.join(HERE, "jobs/softgpu_train.cu")
    if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(source):
        return program
    need_clang()
    beside = os.path.dirname(os.path.realpath(kansoku))
    libraries = next((path for path in (os.path.join(beside, "softgpu"), os.path.join(beside, "../lib/kansoku/softgpu"))
                      if os.path.isdir(path)), None)
    need(libraries, f"{kansoku} has no software device beside it")
    examples = [part for name in ("softgpu", "softgpu_ddp") for part in ("-I", os.path.join(ROOT, "examples", name))]
    return compile_for_device(kansoku, program, source, *examples, "-L", libraries, "-l:libnccl.so.2", SOFTGPU_LIBS=libraries)


JOBS = {job.NAME: job for job in (DdpJob, GpuJob)}
