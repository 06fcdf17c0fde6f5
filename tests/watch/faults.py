# SPDX-License-Identifier: Apache-2.0
"""The faults that are planted in watched jobs, all but the two leaks from outside. docs/measurements/watch-eval.md says what each is.

A fault is planted by a function of (job, ranks, dose) that returns the guard's tickets: undoing them ends it. A dose is larger where
the fault is; its unit is in the table.
"""
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from harness import host
from harness.host import need, run_quietly
from jobs import HERE, MIB, DdpJob, GpuJob

DISK = os.stat(HERE).st_dev
ALL = (DdpJob.NAME, GpuJob.NAME)
HELPER = os.path.join(HERE, "helper.py")
QUOTA_US = 1000  # the smallest that the kernel takes, so that a throttled process gets it often


@dataclass(frozen=True)
class Kind:
    """`victims`: how ranks are chosen: one, core (all of one core), link (nobody in particular), all."""

    name: str
    plant: object
    victims: str
    doses: tuple
    unit: str
    jobs: tuple
    kinds: tuple  # what an incident may call it
    on_s: float = 20.0
    settle_s: float = 0.0  # how much longer than others it is felt behind its end


def helper(job, *arguments, before=()):
    """A process that does harm until it is ended."""
    process = subprocess.Popen([*before, sys.executable, HELPER, *map(str, arguments)], stdin=subprocess.DEVNULL, start_new_session=True)
    return job.guard.watch(process)


def set_group(job, group, name, value, normal):
    """Writes a setting of a control group, to be put back."""
    ticket = job.guard.callback(host.write_file, group.file(name), str(normal))
    group.write(name, value)
    return ticket


def limit_cpu(job, group, pids, dose):
    """The processor time that the processes have used so far, divided by the dose."""
    share = max(1e-3, sum(job.cpu_share(pid) for pid in pids if pid)) / dose
    group.write("cpu.cfs_period_us", min(1_000_000, max(2 * QUOTA_US, int(QUOTA_US / share))))
    return set_group(job, group, "cpu.cfs_quota_us", QUOTA_US, -1)


def cpu_contention(job, ranks, dose):
    return [helper(job, "burn", before=["taskset", "-c", str(job.cores[ranks[0]])]) for _ in range(int(dose))]


def cpu_quota(job, ranks, dose):
    return [limit_cpu(job, job.groups["cpu"][rank], (job.ranks[rank], job.workers[rank]), dose) for rank in ranks]


def slow_input(job, ranks, dose):
    return [limit_cpu(job, job.worker_groups[rank], (job.workers[rank],), dose) for rank in ranks]


def memory_limit(job, ranks, dose):
    """What the ranks have allocated stays; of the rest, which is the mapped table, the dose is taken away."""
    tickets = []
    for rank in ranks:
        group = job.groups["memory"][rank]
        used, kept = int(group.read("memory.usage_in_bytes")), group.statistic("memory.stat", "total_rss")
        limit = int(used - dose * max(0, used - kept - 24 * MIB))
        tickets.append(set_group(job, group, "memory.limit_in_bytes", limit, -1))
    return tickets


def disk_throttle(job, ranks, dose):
    rule = f"{os.major(DISK)}:{os.minor(DISK)}"
    rate = int(job.disk_rate() / dose)
    return [set_group(job, job.groups["blkio"][rank], f"blkio.throttle.{way}_bps_device", f"{rule} {rate}", f"{rule} 0")
            for rank in ranks for way in ("read", "write")]


def io_neighbour(job, _ranks, dose):
    return [helper(job, "write", os.path.join(job.folder, f"noise-{index}")) for index in range(int(dose))]


def link_rate(job, _ranks, dose):
    return job.hosts.limit(8 * job.link_rate() / dose)


def link_delay(job, _ranks, dose):
    return job.hosts.relay_with(dose / 1000, 0)


def link_loss(job, _ranks, dose):
    return job.hosts.relay_with(0, dose / 100)


def stop_bursts(job, ranks, dose):
    """Continuing comes after the end of the helper: undoing goes from the last to the first."""
    pids = [job.ranks[rank] for rank in ranks]
    tickets = [job.guard.callback(host.continue_process, pid, host.start_ticks(pid)) for pid in pids]
    return [helper(job, "stop", dose, 1 - dose, *pids), *tickets]


def leak(job, ranks, _dose):
    tickets = [job.guard.callback(host.remove_file, job.leak_path(rank)) for rank in ranks]
    for rank in ranks:
        with open(job.leak_path(rank), "w", encoding="ascii"):
            pass
    return tickets


def on_device(job, ranks, settings, normal):
    tickets = [job.guard.callback(run_quietly, *job.set_command(rank, *normal)) for rank in ranks]
    for rank in ranks:
        job.set_device(rank, *settings)
    return tickets


def gpu_clock(job, ranks, dose):
    return on_device(job, ranks, ["--speed", 1 / dose], ["--speed", 1])


def gpu_thermal(job, ranks, dose):
    return on_device(job, ranks, ["--throttle", "thermal", "--temperature", int(dose)], ["--throttle", "auto", "--temperature", 0])


def gpu_xid(job, ranks, _dose):
    """Nothing to undo: an error happens once. Always another number, or the device would not tell it again."""
    for rank in ranks:
        job.set_device(rank, "--xid", next(job.errors))
    return []


def gpu_ecc(job, ranks, dose):
    tickets = []
    for rank in ranks:
        job.set_device(rank, "--ecc-corrected", int(time.monotonic() * dose))  # says so if that cannot be done
        command = job.set_command(rank, "--ecc-corrected", "{n}")
        tickets.append(helper(job, "count", dose, *command))
    return tickets


def gpu_neighbour(job, ranks, dose):
    """Strangers of another session compute on the rank's device."""
    variables = {**job.device_environment(), "KANSOKU_SOFTGPU_WORKERS": "1", "CUDA_VISIBLE_DEVICES": str(ranks[0])}
    before = ["env", *(f"{name}={value}" for name, value in variables.items())]
    folder = os.path.join(job.folder, "neighbour")
    os.makedirs(folder, exist_ok=True)
    tickets = []
    for index in range(int(dose)):
        own = os.path.join(folder, str(index))
        os.makedirs(own, exist_ok=True)
        host.remove_file(os.path.join(own, "id"))
        command = [job.kansoku, "run", "--softgpu", "--devices", str(job.world), "--memory", job.MEMORY, "--", job.program, "0", "1", own]
        with open(os.path.join(own, "log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen([*before, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        tickets.append(job.guard.watch(process))
    return tickets


CONTENTION = ("resource_contention",)
COMMUNICATION = ("communication_inefficiency",)
HARDWARE = ("hardware_fault",)
KINDS = {kind.name: kind for kind in (
    Kind("cpu_contention", cpu_contention, "core", (2, 6), "busy processes on the core", ALL, CONTENTION),
    Kind("cpu_quota", cpu_quota, "one", (1.5, 4), "used / given processor time", ALL, CONTENTION),
    Kind("slow_input", slow_input, "one", (2, 6), "used / given processor time of the loader", ("ddp",), ("input_starvation", *CONTENTION)),
    Kind("memory_limit", memory_limit, "one", (0.7, 1.0), "share of the cached file taken away", ("ddp",),
         (*CONTENTION, "input_starvation"), settle_s=40.0),
    Kind("disk_throttle", disk_throttle, "one", (2, 5), "wanted rate / rate", ("ddp",), ("input_starvation", *CONTENTION)),
    Kind("io_neighbour", io_neighbour, "link", (3, 8), "writing processes", ("ddp",), (*CONTENTION, "input_starvation")),
    Kind("link_rate", link_rate, "link", (1.5, 4), "used / given rate", ALL, COMMUNICATION),
    Kind("link_delay", link_delay, "link", (2, 8), "ms each way", ALL, COMMUNICATION),
    Kind("link_loss", link_loss, "link", (2, 10), "% of packets", ALL, COMMUNICATION),
    Kind("stop_one", stop_bursts, "one", (0.2, 0.5), "share of each second", ALL, CONTENTION),
    Kind("stop_all", stop_bursts, "all", (0.2, 0.5), "share of each second", ALL, CONTENTION),
    Kind("memory_leak", leak, "one", (8,), "MiB/s", ("ddp",), ("memory_growth",), 40.0),
    Kind("gpu_memory_leak", leak, "one", (8,), "MiB/s", ("gpu",), ("memory_growth",), 40.0),
    Kind("gpu_clock", gpu_clock, "one", (1.5, 3), "nominal clock / clock", ("gpu",), HARDWARE),
    Kind("gpu_thermal", gpu_thermal, "one", (91, 97), "degrees, clock unchanged", ("gpu",), HARDWARE),
    Kind("gpu_xid", gpu_xid, "one", (1,), "errors", ("gpu",), HARDWARE),
    Kind("gpu_ecc", gpu_ecc, "one", (20,), "corrected errors a second", ("gpu",), HARDWARE),
    Kind("gpu_neighbour", gpu_neighbour, "one", (1, 3), "jobs on the device", ("gpu",), (*CONTENTION, *HARDWARE)),
)}
ANY_KIND = ("latency_spike", "slow_forward", "slow_backward", "slow_optimizer")  # right for every fault that makes steps longer


def kind_is_right(fault_kind, told):
    return told in KINDS[fault_kind].kinds or told in ANY_KIND


def victims_of(kind, job, rng):
    """Ranks to plant it on."""
    if kind.victims == "core":
        core = rng.choice(sorted(set(job.cores)))
        return [rank for rank in range(job.world) if job.cores[rank] == core]
    if kind.victims == "one":
        return [rng.randrange(job.world)]
    return list(range(job.world))


def culprits(kind, ranks):
    """What the truth says: ranks that should stand out; empty if nobody does, and no rank is judged."""
    return ranks if kind.victims in ("one", "core") else []


def chosen(job_name):
    """(kind, dose) of a job, in the order of the table."""
    return [(kind, dose) for kind in KINDS.values() if job_name in kind.jobs for dose in kind.doses]


def plant(job, kind, ranks, dose):
    need(all(ranks[i] < job.world for i in range(len(ranks))), "no such rank")
    return kind.plant(job, ranks, dose)
