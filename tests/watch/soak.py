#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two hours of the agent on a host where processes come and go: does it grow? Samples are in build/watch-eval/soak.

  soak.py start     begins in the background, in a session of its own: it outlives its caller
  soak.py status    is it running, how far is it
  soak.py report    the second hour against the first: memory, descriptors, threads, BPF objects, processor time
  soak.py stop      ends it
"""
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import ROOT, Impossible, end_process, start_ticks  # noqa: E402
from harness.host import LAUNCH, remove_file  # noqa: E402
from guard import Guard  # noqa: E402
from jobs import MIB, build_gpu_program, cpu_seconds, make_file  # noqa: E402
from session import Agent, fresh  # noqa: E402

SAMPLE_S, BURST_S, JOB_S = 10.0, 1.0, 120.0  # between two samples; two bursts of short processes; two jobs
BURST = 3  # processes: ten thousand in an hour
JOB_LIVES_S = 60
SHORT = (["/bin/true"], ["/bin/sh", "-c", "sleep 0.2; :"], ["/usr/bin/python3", "-c", "pass"], ["/usr/bin/env"])
MEASURES = ("resident_bytes", "descriptors", "threads", "maps", "programs", "links", "cpu_s")


def bpf_objects(pid):
    """Maps, programs and links that the process has descriptors of, and how many descriptors it has at all."""
    count = collections.Counter(maps=0, programs=0, links=0, descriptors=0)
    with contextlib.suppress(FileNotFoundError):
        for number in os.listdir(f"/proc/{pid}/fdinfo"):
            count["descriptors"] += 1
            with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii", errors="replace") as file:
                words = {line.split(":")[0] for line in file}
                # A link names its program too.
                count["links" if "link_type" in words else "programs" if "prog_id" in words else "maps" if "map_id" in words else ""] += 1
    del count[""]
    return dict(count)


def sample(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    return {"time_s": time.time(), "resident_bytes": int(status["VmRSS"].split()[0]) * 1024, "threads": int(status["Threads"]),
            "cpu_s": cpu_seconds(pid), **bpf_objects(pid)}


class Churn:
    """Processes and jobs that come and go by a seeded plan."""

    def __init__(self, options, guard, folder):
        self.rng, self.guard, self.folder, self.kansoku = random.Random(options.seed), guard, folder, options.kansoku
        self.short, self.jobs, self.started, self.job_count = [], [], 0, 0
        make_file(os.path.join(folder, "data.bin"), 16 * MIB)
        for rank in range(2):
            make_file(os.path.join(folder, f"table-{rank}.bin"), 4 * MIB)
        try:
            self.gpu_program = build_gpu_program(self.kansoku, folder)
        except Impossible as reason:
            print(f"without software GPU jobs: {reason}", flush=True)
            self.gpu_program = None

    def burst(self):
        self.short = [process for process in self.short if process.poll() is None]
        for _ in range(BURST):
            self.short.append(subprocess.Popen(self.rng.choice(SHORT), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        self.started += BURST

    def start_job(self):
        """A training job of two ranks on this host, on the processor or on a software device; ends by itself."""
        for process, ticket in [job for job in self.jobs if job[0].poll() is not None]:
            self.guard.forget(ticket)
            self.jobs.remove((process, ticket))
        self.job_count += 1
        command = [sys.executable, LAUNCH, os.path.join(ROOT, "tests/watch/jobs/train.py")]
        if self.gpu_program and self.job_count % 2:
            remove_file(os.path.join(self.folder, "id"))
            command = [sys.executable, LAUNCH, self.kansoku, "run", "--softgpu", "--devices", "2", "--memory", "1G", "--",
                       self.gpu_program, "{rank}", "2", self.folder]
        lives_s = self.rng.randint(JOB_LIVES_S // 2, JOB_LIVES_S)
        with open(os.path.join(self.folder, "job.log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen(["timeout", "-k", "10", str(lives_s), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True,
                                       env={**os.environ, "RANKS": "2", "FOLDER": self.folder, "KANSOKU_SOFTGPU_WORKERS": "1"})
        self.jobs.append((process, self.guard.watch(process, "SIGTERM")))


def run(options, folder):
    """In the background: until the time is over or the agent has ended."""
    end = time.monotonic() + options.hours * 3600
    os.environ["KANSOKU_SOFTGPU_DIR"] = os.path.join(folder, "devices")  # of agent and jobs
    due = {"sample": 0.0, "burst": 0.0, "job": 0.0}
    with Guard() as guard, open(os.path.join(folder, "samples.jsonl"), "a", encoding="utf-8") as out:
        churn = Churn(options, guard, folder)
        agent = Agent(guard, options, folder, os.path.join(folder, "state"), options.hours * 3600 + 300)
        while (now := time.monotonic()) < end:
            agent.check()
            for name, every_s, do in (("sample", SAMPLE_S, None), ("burst", BURST_S, churn.burst), ("job", JOB_S, churn.start_job)):
                if now < due[name]:
                    continue
                due[name] = now + every_s
                if do:
                    do()
                else:
                    record = {**sample(agent.process.pid), "processes": churn.started, "jobs": churn.job_count}
                    out.write(json.dumps(record) + "\n")
                    out.flush()
            time.sleep(0.2)
        agent.stop()
    print("over", flush=True)


def slope_per_hour(samples, name):
    """Least squares; 0 for fewer than two samples."""
    times, values = [s["time_s"] / 3600 for s in samples], [s[name] for s in samples]
    if len(samples) < 2:
        return 0.0
    middle = sum(times) / len(times)
    spread = sum((t - middle) ** 2 for t in times)
    return sum((t - middle) * (v - values[0]) for t, v in zip(times, values)) / spread if spread else 0.0


def halves(samples, hour_s=3600.0):
    """The first and the second hour; of a shorter run, its halves."""
    begin_s, length_s = samples[0]["time_s"], samples[-1]["time_s"] - samples[0]["time_s"]
    hour_s = min(hour_s, length_s / 2)
    return ([s for s in samples if s["time_s"] < begin_s + hour_s],
            [s for s in samples if begin_s + hour_s <= s["time_s"] <= begin_s + 2 * hour_s])


def read_samples(folder):
    try:
        with open(os.path.join(folder, "samples.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def report(samples):
    if len(samples) < 4:
        return "soak: not run yet"
    first, second = halves(samples)
    lines = [f"{(samples[-1]['time_s'] - samples[0]['time_s']) / 3600:.2f} hours, {samples[-1]['processes']} short processes, "
             f"{samples[-1]['jobs']} jobs\n", "| | first hour: mean | growth an hour | second hour: mean | growth an hour | most |",
             "|---|---|---|---|---|---|"]
    for name in MEASURES:
        unit, form = (1e6, "{:.2f}") if name == "resident_bytes" else (1, "{:.1f}")
        cells = [form.format(round(value / unit, 6) + 0.0) for half in (first, second)
                 for value in (sum(s[name] for s in half) / len(half), slope_per_hour(half, name))]
        cells.append(form.format(max(s[name] for s in samples) / unit))
        lines.append(f"| {'resident MB' if name == 'resident_bytes' else name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def read_pid(folder):
    """(pid, start) of a soak that runs, or None."""
    with contextlib.suppress(FileNotFoundError, ValueError), open(os.path.join(folder, "pid"), encoding="ascii") as file:
        pid, ticks = map(int, file.read().split())
        return (pid, ticks) if ticks and start_ticks(pid) == ticks else None
    return None


def begin(options, folder):
    if read_pid(folder):
        print("a soak is running already")
        return 1
    fresh(folder)
    with open(os.path.join(folder, "soak.log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "run", *sys.argv[2:]], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
    with open(os.path.join(folder, "pid"), "w", encoding="ascii") as file:
        file.write(f"{process.pid} {start_ticks(process.pid)}\n")
    print(f"running as process {process.pid} for {options.hours} hours; samples in {folder}")
    return 0


def show_status(folder):
    running, samples = read_pid(folder), read_samples(folder)
    over_s = samples[-1]["time_s"] - samples[0]["time_s"] if samples else 0
    print(f"{'running' if running else 'not running'}, {over_s / 60:.0f} minutes sampled")
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "soak.log"), encoding="utf-8") as file:
        print(file.read()[-1000:].strip())


def parse():
    parser = kit.parser(__doc__)
    parser.add_argument("what", choices=("start", "status", "report", "stop", "run"))
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learn-s", type=int, default=600)
    parser.add_argument("--root", default=os.path.join(ROOT, "build/watch-eval"), metavar="FOLDER")
    options = parser.parse_args()
    options.agent_options = []
    return options


def main(_report):
    options = parse()
    folder = os.path.join(options.root, "soak")
    if options.what == "run":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        run(options, folder)
    elif options.what == "start":
        return begin(options, folder)
    elif options.what == "status":
        show_status(folder)
    elif options.what == "report":
        print(report(read_samples(folder)))
    elif running := read_pid(folder):
        end_process(*running, "SIGTERM", 30.0)
    return 0


if __name__ == "__main__":
    kit.run(main)
