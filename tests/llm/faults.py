#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""faults.py [--rounds 3] [--clean 10] [--seed 1] [NAME...]: causes that are planted into a running generation, at random times, and found or not.

Each recording is 8 s of a 24-layer model. A fault counts as found if the finding that costs most names its cause; a clean run if there is none.
Prints one line a run and a table. Exit status 1 if a fault was missed or a clean run was not silent, 77 without root or builds."""
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "llama"))
import builds  # noqa: E402
import exact  # noqa: E402
import kit  # noqa: E402
import models  # noqa: E402
import run as llama  # noqa: E402

SECONDS = 8
CPU, MEMORY = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"
STREAM = """
#include <stdlib.h>
#include <string.h>
int main(void) {
  const size_t bytes = 256u << 20;
  char *a = malloc(bytes), *b = malloc(bytes);
  memset(a, 1, bytes);
  for (;;) { memcpy(b, a, bytes); a[b[1]]++; }
}
"""
# Between llama.cpp and the operator that it calls: the operator, and then so long again.
SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
void ggml_compute_forward_rope(const void* params, void* tensor) {
  static void (*real)(const void*, void*);
  if (!real) real = (void (*)(const void*, void*))dlsym(RTLD_NEXT, "ggml_compute_forward_rope");
  real(params, tensor);
  for (const double begin = now(); now() - begin < 10e-6;) {}
}
"""


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


@contextlib.contextmanager
def group(root, name):
    path = os.path.join(root, f"kansoku-llm-{os.getpid()}-{name}")
    os.makedirs(path, exist_ok=True)
    try:
        yield path
    finally:
        for which in ("tasks", "cgroup.procs"):
            with contextlib.suppress(OSError), open(os.path.join(path, which), encoding="ascii") as file:
                for line in file.read().split():
                    with contextlib.suppress(OSError):
                        write(os.path.join(root, which), line)
        with contextlib.suppress(OSError):
            os.rmdir(path)


def compiled(folder, name, text, *options):
    source, out = os.path.join(folder, name + ".c"), os.path.join(folder, name)
    with open(source, "w", encoding="ascii") as file:
        file.write(text)
    subprocess.run(["cc", "-O1", source, "-o", out, *options], check=True)
    return out


def tids(pid):
    return sorted(int(tid) for tid in os.listdir(f"/proc/{pid}/task"))


class Job(kit.Job):
    """A generation, on so many threads."""

    def __init__(self, threads, model="mid", environment=None, memory=None):
        path = models.model(model)

        def join():
            if memory:  # before it reads the weights, or they count elsewhere
                write(os.path.join(memory, "cgroup.procs"), os.getpid())
        words = [models.driver("openmp"), "--model", path, "--tokens", "10000000", "--threads", str(threads), "--prompt-tokens", "32", "--context", "256"]
        super().__init__(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(models.settings("openmp"), **(environment or {})),
                         preexec_fn=join)

    def __enter__(self):
        time.sleep(2)  # until it decodes: a recording that began earlier would hold less, and no other verdict
        return self


def recorded(job, folder, chance, plant):
    """A recording of the job; `plant` is called at a random time of it."""
    path = os.path.join(folder, "run.pftrace")
    words = [exact.kansoku(), "llm", "record", "-q", "-p", str(job.pid), "--level", "operator", "--budget", "none", "--duration", f"{SECONDS}s",
             "--force", "-o", path]
    timer = threading.Timer(chance.uniform(0.3, 0.6) * SECONDS, plant)
    timer.start()
    subprocess.run(words, check=True)
    timer.join()
    return path


def throttled_worker(folder, chance):
    with group(CPU, "worker") as path, Job(2) as job:
        write(os.path.join(path, "cpu.cfs_period_us"), 20000)
        write(os.path.join(path, "cpu.cfs_quota_us"), 6000)
        worker = tids(job.pid)[-1]
        return recorded(job, folder, chance, lambda: write(os.path.join(path, "tasks"), worker))


def oversubscribed(folder, chance):
    """More threads than processors, by a smaller set of processors."""
    with Job(4) as job:
        return recorded(job, folder, chance, lambda: None)


def evicted(folder, chance):
    with open(models.model("mid"), "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with group(MEMORY, "job") as path, Job(1, memory=path) as job:
        return recorded(job, folder, chance, lambda: write(os.path.join(path, "memory.limit_in_bytes"), 220 << 20))


def memory_bus(folder, chance):
    stream = compiled(folder, "stream", STREAM)
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(Job(1))
        for tid in tids(job.pid):
            os.sched_setaffinity(tid, {0})
        return recorded(job, folder, chance, lambda: stack.enter_context(kit.Job(["taskset", "-c", "1", stream])))


def device_clock(folder, chance):
    """The software device at half its speed, from a random time on."""
    path, started = os.path.join(folder, "run.pftrace"), []
    model = llama.Models("lean-80").make("F32")
    words, environment = builds.command("lean-80", "generate", "text", model, "--tokens", "1000")
    state = dict(environment, KANSOKU_SOFTGPU_DIR=os.path.join(folder, "state"))

    def plant():
        started.append(subprocess.run([exact.kansoku(), "gpu", "set", "--speed", "0.5"], env=state, check=False, stdout=subprocess.DEVNULL))
    timer = threading.Timer(chance.uniform(2, 4), plant)
    timer.start()
    kit.record(exact.kansoku(), path, "-q", "--cuda", "--probes", "llama,ggml-graph", "--force", of=words, env=state, check=True)
    timer.join()
    return path


def slow_operator(folder, chance):
    wrapper = compiled(folder, "slow.so", SLOW, "-shared", "-fPIC", "-ldl")
    with Job(1) as job:
        base = os.path.join(folder, "base.pftrace")
        os.replace(recorded(job, folder, chance, lambda: None), base)
    with Job(1, environment={"LD_PRELOAD": wrapper}) as job:
        return recorded(job, folder, chance, lambda: None), base


def clean(folder, chance):
    threads = chance.choice([1, 2])
    with Job(threads) as job:
        base = os.path.join(folder, "base.pftrace")
        os.replace(recorded(job, folder, chance, lambda: None), base)
        return recorded(job, folder, chance, lambda: None), base


FAULTS = {"throttled-worker": (throttled_worker, "thread_held_back"), "oversubscribed": (oversubscribed, "oversubscribed"),
          "evicted-weights": (evicted, "weights_read"), "memory-bus": (memory_bus, "memory_busy"), "slow-operator": (slow_operator, "slow_operator"),
          "device-clock": (device_clock, "device_slower")}


def judged(name, make, wanted, chance):
    with tempfile.TemporaryDirectory() as folder:
        made = make(folder, chance)
        path, base = made if isinstance(made, tuple) else (made, None)
        report = exact.report_of(path, *(["--base", base] if base else []))
    found = report["findings"]
    is_right = bool(found) and found[0]["cause"] == wanted if wanted else not found
    if name == "slow-operator":
        is_right = is_right and found[0]["what"] == "ROPE"
    told = "; ".join(f"{one['cause']} {one['what']} {100 * one['share']:.0f} %" for one in found) or "nothing"
    print(f"fault {name}: {'right' if is_right else 'WRONG'}: {told}", flush=True)
    return is_right


def all_judged(name, make, wanted, chance, count):
    results = [judged(name, make, wanted, chance) for _ in range(count)]
    print(f"faults {name}: {sum(results)} of {count}")
    return count - sum(results)


def main(report):
    parser = kit.parser(__doc__, False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clean", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    kit.need_root()
    chance = random.Random(options.seed)
    plan = [(name, make, wanted, options.rounds) for name, (make, wanted) in FAULTS.items()] + [("clean", clean, None, options.clean)]
    for name, make, wanted, count in plan:
        if not options.names or name in options.names:
            report.part(name, all_judged, name, make, wanted, chance, count)


if __name__ == "__main__":
    kit.run(main)
