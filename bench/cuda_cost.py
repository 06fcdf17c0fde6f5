#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_cost.py BUILD short|long|PART... [--llama GENERATE MODEL]: what the CUDA library costs a program on the software GPU.

  counted   the price of a call that is only counted (bench_cuda, a driver that does nothing)
  modes     a training (bench/cuda_steps.cu), and a generation if --llama names one: asleep, sampled and every in windows of random order of
            one process, processor time of program and reader a step, beside hits times price
  slope     the same price where its effect is large: launches that repeat what the library adds to them 0 to 40 times (counted: 400)
  recorder  what `record --cuda` itself takes on top of the reader of modes, which throws the records away: processor time an operation
  graphs    a program that instantiates a graph in each step, and one that launches the same again: `record --cuda` on and off, in pairs
  budget    probes from outside on a program above their budget: what they take of a processor

short: some seconds each, no more than a check; long: 9 minutes, on a machine that is otherwise idle. Needs root, and clang 19 for the training:
status 77 without."""
import contextlib
import json
import mmap
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Windows of 250 ms: (blocks of four windows, blocks of the slope of timed operations, of counted ones, rounds of the budget)
SIZES = {"short": (10, 5, 5, 1), "long": (250, 50, 60, 3)}
WINDOW_MS = "250"
SLOTS = 1 << 20  # of step_log.h
PARTS = ("counted", "modes", "slope", "recorder", "graphs", "budget")
GRAPH_STEPS = 2000


def skip(reason):
    print(f"bench cuda/switch not run: {reason}")
    sys.exit(77)


class Steps:
    """The file of step_log.h."""

    def __init__(self, path):
        with open(path, "wb") as file:
            file.truncate(8 + 16 * SLOTS)
        self.file = open(path, "r+b")
        self.memory = mmap.mmap(self.file.fileno(), 0)

    def count(self):
        return struct.unpack_from("<Q", self.memory, 0)[0]

    def window(self, seconds):
        """Processor time of a step and steps a second, of those wholly within the next seconds."""
        begin = self.count()
        time.sleep(seconds)  # allowed: the length of a window
        end = self.count() - 1
        (boot, cpu), (last_boot, last_cpu) = (struct.unpack_from("<QQ", self.memory, 8 + 16 * (at % SLOTS)) for at in (begin, end))
        return (last_cpu - cpu) / (end - begin), (end - begin) * 1e9 / (last_boot - boot)


def median(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


@contextlib.contextmanager
def running(command):
    """The training, its steps and a folder, while the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "steps")
        steps = Steps(path)
        target = subprocess.Popen(command, env={**os.environ, "KANSOKU_STEPS": path})
        try:
            while steps.count() < 200:
                if target.poll() is not None:
                    sys.exit("the training ended")
                time.sleep(0.05)  # allowed: the pause of a poll loop
            yield target.pid, steps, folder
        finally:
            target.kill()
            target.wait()


def recorder(kansoku, program, rounds):
    """By the difference of a long and a short recording, so that beginning and end drop out."""
    with running([kansoku, "run", "--softgpu", "--cuda", "--", program]) as (pid, _, folder):
        for mode in ("sampled", "every"):
            rows = []
            for _ in range(rounds):
                one = []
                for seconds in (2, 6):
                    trace = os.path.join(folder, f"{seconds}.pftrace")
                    before = resource.getrusage(resource.RUSAGE_CHILDREN)
                    subprocess.run([kansoku, "record", "-q", "--no-bpf", f"--cuda={mode}", "--force", "-p", str(pid), "--duration", f"{seconds}s", "-o",
                                    trace], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    after = resource.getrusage(resource.RUSAGE_CHILDREN)
                    one.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, os.path.getsize(trace)))
                rows.append([(one[1][at] - one[0][at]) / 4 for at in (0, 1)])
            print(f"bench cuda/recorder mode={mode} rounds={rounds} took={100 * median([row[0] for row in rows]):.2f}% of a processor "
                  f"wrote_kib_a_second={median([row[1] for row in rows]) / 1024:.0f}", flush=True)


def graphs(kansoku, program, rounds):
    """What a step takes, on against off; the pairs alternate in which comes first."""
    for kind in ("anew", "again"):
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "run.pftrace")
            plain = [kansoku, "run", "--softgpu", "--", program, kind, str(GRAPH_STEPS)]
            recorded = [kansoku, "record", "-q", "--force", "--cuda", "-o", trace, "--", *plain]
            for at in range(5 * rounds):
                pair = {}
                for command in (plain, recorded) if at % 2 else (recorded, plain):
                    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                    pair[len(command)] = [float(value) for value in re.search(r"wall_us=([\d.]+) cpu_us=([\d.]+)", done.stdout).groups()]
                off, on = pair[len(plain)], pair[len(recorded)]
                rows.append([off[0], on[0] / off[0], on[1] / off[1]])
            report = json.loads(subprocess.run([kansoku, "cuda", "report", "--json", trace], check=False, stdout=subprocess.PIPE, text=True).stdout)
        idle = {row["cause"]: row["us"] for device in report["devices"] for row in device.get("idle", [])}
        print(f"bench cuda/graphs kind={kind} pairs={len(rows)} step_us={median([row[0] for row in rows]):.0f} "
              f"wall_on_to_off={median([row[1] for row in rows]):.3f} cpu_of_main_thread_on_to_off={median([row[2] for row in rows]):.3f} "
              f"held_up_by_kansoku_ms={idle.get('observer', 0) / 1000:.1f}", flush=True)


def budget(kansoku, program, rounds):
    """Probes at launches without a limit, and with one that is far below what they would take."""
    with running([kansoku, "run", "--softgpu", "--", program]) as (pid, steps, _):
        for limit in ("0", "0.005"):
            seen = lambda seconds: subprocess.Popen([kansoku, "cuda", "stat", "-q", "--json", "--budget", limit, "-p", str(pid), "--for",
                                                     f"{seconds}s"], stdout=subprocess.PIPE, text=True)
            took, rows = [], []
            for _ in range(rounds):
                off, rate = steps.window(3)
                observer = seen(10)
                time.sleep(4)  # allowed: they are attached, and the rate is known
                on, _ = steps.window(5)
                rows.append(json.loads(observer.communicate()[0]))
                took.append((on - off) * rate * 1e-9)
            a_second = lambda name: median([row["probes"][name] / row["elapsed_s"] for row in rows])
            price = rows[0]["probes"]["hit_s"]
            print(f"bench cuda/budget limit={100 * float(limit):.1f}% rounds={rounds} steps_a_second={rate:.0f} "
                  f"launch_hits_a_second={a_second('launch_hits'):.0f} naming_hits_a_second={a_second('naming_hits'):.0f} "
                  f"hit_ns={1e9 * price:.0f} launch_hits_times_price={100 * a_second('launch_hits') * price:.2f}% "
                  f"seen={100 * median([row['probes']['share_of_time_seen'] for row in rows]):.1f}% "
                  f"all_probes_took={100 * median(took):.2f}% of a processor", flush=True)


def main():
    words = sys.argv[1:]
    llama = []
    if "--llama" in words:
        at = words.index("--llama")
        words, llama = words[:at], words[at + 1:]
    if len(words) < 2 or len(llama) not in (0, 2) or not set(words[1:]) <= {*SIZES, *PARTS}:
        sys.exit(__doc__)
    build, parts = os.path.abspath(words[0]), [word for word in words[1:] if word in PARTS] or list(PARTS)
    modes, timed, counted, rounds = SIZES["short" if "short" in words[1:] else "long"]
    if os.geteuid() != 0:
        skip("needs root")
    kansoku = os.path.join(build, "kansoku")
    run = lambda *command, **more: subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **more).stdout
    text = run(os.path.join(build, "bench", "bench_cuda"), os.path.join(build, "cuda", "libkansoku_cuda.so"),
               os.path.join(build, "cuda_test", "libnull_driver.so"), "null", "9", "0")
    price = re.search(r"counted_ns=([\d.]+)", text)[1]
    print(text, end="", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        training = os.path.join(folder, "cuda_steps")
        clang = os.path.join(build, "softgpu", "toolkit", "bin", "softgpu-clang")
        done = subprocess.run([clang, "-std=c++17", "-O2", "-o", training, os.path.join(HERE, "cuda_steps.cu")],
                              env={**os.environ, "KANSOKU": kansoku}, capture_output=True, text=True)
        if done.returncode != 0:
            skip(done.stderr.strip()[-300:])
        programs = [("training", [training])]
        if llama:
            preload = os.path.join(build, "bench", "libbench_steps_llama.so")
            programs.append(("generation", ["env", f"LD_PRELOAD={preload}", llama[0], "text", llama[1], "--tokens", "900"]))
        switch = os.path.join(build, "bench", "bench_cuda_switch")
        for name, command in programs:
            for part, kind, blocks in (("modes", "modes", modes), ("slope", "every", timed), ("slope", "counted", counted)):
                if part in parts:
                    print(run(switch, kansoku, name, kind, str(blocks), WINDOW_MS, price, *command), end="", flush=True)
        if "recorder" in parts:
            recorder(kansoku, training, rounds)
        if "graphs" in parts:
            steps = os.path.join(folder, "cuda_graph_steps")
            run(clang, "-std=c++17", "-O2", "-o", steps, os.path.join(HERE, "cuda_graph_steps.cu"), env={**os.environ, "KANSOKU": kansoku})
            graphs(kansoku, steps, rounds)
        if "budget" in parts:
            budget(kansoku, training, rounds)


main()
