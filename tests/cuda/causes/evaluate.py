#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores `kansoku cuda report`, `kansoku diagnose` and `kansoku hang` on live recordings of a program with a planted cause, and of its twin.

    evaluate.py all [--seeds 1,2,3]        every cause and twin; prints the table of docs/measurements/cuda-causes.md
    evaluate.py sync leak --seeds 101      some of them
    evaluate.py gate                       those that no load can change, briefly; status 77 if it cannot run here
    evaluate.py launch RANKS SLOW -- ...   (used by itself) one process a rank

The program (causes.cu, for the loader loader.py) runs on the software GPU and says what its planted trouble costs of a step: half of the steps
are without. The amount is adjusted until that is a tenth; then every step has it, and `kansoku record --cuda` records. A cause must be named
first, by report and diagnosis; its twin looks alike, costs at most 1 % by the program's own clock, and nothing may be named. Needs root, clang 19, for the
loader PyTorch in /usr/bin/python3. Exit status 1: a cause was not named first, or a twin was.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))
import kit  # noqa: E402
from kit import ROOT  # noqa: E402

TARGET, TOLERANCE, TWIN_MAX = 0.10, 0.03, 0.01
RANKS = 4


class Cause:
    """`amount`: the first guess; `unit` of it. `named`: what the report must say first."""

    def __init__(self, amount, unit, named, twin, is_state=False):
        self.amount, self.unit, self.named, self.twin, self.is_state = amount, unit, named, twin, is_state


CAUSES = {
    "clock": Cause(900, "speed of the device, 1/1000", ("slow_kernel", "clocked_lower"), "another name, nominal clock"),
    "launches": Cause(40, "tiny kernels a step", ("launch_bound", "launches"), "as many launches of longer kernels"),
    "pageable": Cause(4 << 20, "bytes a step", ("copy_bound", "pageable"), "the same copies, pinned, beside kernels"),
    "sync": Cause(150, "us of the host after each wait", ("gpu_starved", "synchronisation"), "waits for an idle device"),
    "allocation": Cause(150, "us an allocation", ("gpu_starved", "allocation"), "allocations before the loop"),
    "loader": Cause(2500, "us a batch", ("gpu_starved", "loader"), "loads while the device works"),
    "lock": Cause(2500, "us a step", ("gpu_starved", "lock"), "held while nobody wants it"),
    "leak": Cause(1 << 20, "bytes a step", ("memory_pressure", "leak"), "a pool that grows to a plateau", True),
    "oom": Cause(32 << 20, "bytes an allocation", ("memory_pressure", "out_of_memory"), "a failure that is caught", True),
    "stuck": Cause(0, "", ("stuck_kernel", "backward"), "a kernel of 3 s", True),
}
# Of the states, by seed: bytes a step, bytes an allocation.
STATE_AMOUNTS = {"leak": [1 << 20, 3 << 20, 2 << 20], "oom": [32 << 20, 8 << 20, 100 << 20], "stuck": [0, 0, 0]}


class Bench:
    def __init__(self, options, out):
        self.kansoku, self.out, self.options = options.kansoku, out, options
        self.program = os.path.join(out, "causes")
        self.library = os.path.join(out, "libcauses.so")
        self.folder = os.path.join(out, "devices")
        self.less_us = self.excess_us = 0
        self.environment = {**os.environ, "KANSOKU_SOFTGPU_DIR": self.folder, "KANSOKU_SOFTGPU_LOG": "off", "KANSOKU_SOFTGPU_WORKERS": "1"}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            self.environment.pop(name, None)

    def build(self):
        source = os.path.join(HERE, "causes.cu")
        for file, more in ((self.program, []), (self.library, ["-shared", "-Xcompiler", "-fPIC"])):
            kit.compile_for_device(self.kansoku, file, *more, "-std=c++20", source)

    def first(self):
        """Others use the machine, and what is planted is a tenth of a step: the program and the recorder go first."""
        if not self.options.plain:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))

    def words(self, cause, seed, amount, plant, twin, steps):
        return [f"mode={cause}", f"seed={seed}", f"amount={amount:.0f}", f"plant={plant}", f"twin={int(twin)}", f"steps={steps}"]

    def command(self, cause, words):
        if cause == "clock":
            return [sys.executable, os.path.abspath(__file__), "launch", "--kansoku", self.kansoku, self.program, *words]
        program = ["/usr/bin/python3", os.path.join(HERE, "loader.py"), self.library] if cause == "loader" else [self.program]
        memory = ["--memory", "512M"] if cause == "oom" else []
        return [self.kansoku, "run", "--softgpu", *memory, "--", *program, *words]

    def run(self, cause, words, record=None):
        """The program's own account, a list of objects; with `record` under the recorder."""
        command = self.command(cause, words)
        if record:
            command = kit.record_command(self.kansoku, record, "-q", "--cuda", "--force", of=command)
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, preexec_fn=self.first, timeout=300)
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"mode"')]
        kit.expect(said or cause == "oom", f"{' '.join(command)}: status {done.returncode}: {done.stderr[-2000:]}")
        return said

    def speed(self, permille, device):
        subprocess.run([self.kansoku, "gpu", "set", "--device", str(device), "--speed", str(permille / 1000)], check=True, capture_output=True,
                       env={**self.environment, "KANSOKU_SOFTGPU_DEVICES": str(RANKS)})

    def cost(self, cause, seed, amount, twin, steps):
        """The share of the step by the program's own clock, and the step without."""
        if cause == "clock":
            slow = seed % RANKS
            self.speed(1000 if twin else amount, slow)
            said = {row["rank"]: row["planted_us"] for row in self.run(cause, self.words(cause, seed, slow, "always", twin, steps // 2))}
            peers = sorted(us for rank, us in said.items() if rank != slow)
            return 1 - peers[len(peers) // 2] / said[slow], peers[len(peers) // 2]
        (row,) = self.run(cause, [*self.words(cause, seed, amount, "alternate", twin, steps), *self.more(cause, twin)])
        self.excess_us = row["planted_us"] - row["clean_us"]
        return row["cost"], row["clean_us"]

    def more(self, cause, twin):
        return [f"less={self.less_us:.0f}"] if cause == "launches" and twin else []

    def twin_cost(self, cause, seed, amount):
        """More and shorter kernels take longer together, by what each takes besides: theirs is shortened until they do not."""
        self.less_us = 0
        cost = self.cost(cause, seed, amount, True, 2 * self.options.steps)[0]
        for _ in range(3 if cause == "launches" else 0):
            if abs(cost) <= TWIN_MAX / 2:
                break
            self.less_us += self.excess_us / amount
            cost = self.cost(cause, seed, amount, True, 2 * self.options.steps)[0]
        return cost

    def calibrate(self, cause, seed):
        """(amount, cost, step in us): the amount that costs a tenth."""
        amount = CAUSES[cause].amount
        for _ in range(8):
            cost, clean = self.cost(cause, seed, amount, False, self.options.steps)
            if self.options.verbose:
                print(f"  {cause} seed {seed}: {amount:.0f} costs {cost:.3f} of {clean:.0f} us", flush=True)
            if abs(cost - TARGET) <= TOLERANCE / 2:
                break
            if cause == "clock":
                amount = 1000 - (1000 - amount) * TARGET / max(cost, 0.02)
            else:
                amount *= min(4, max(0.25, (TARGET / (1 - TARGET)) / max(cost / (1 - cost), 0.01)))
        return amount, cost, clean

    def report(self, trace):
        report = kit.answer(self.kansoku, "cuda", "report", "--json", trace)
        report["diagnosed"] = self.diagnosed(trace)
        return report

    def diagnosed(self, trace):
        """Kinds and details that the diagnosis of the same recording has, of all of its jobs."""
        diagnosis = kit.answer(self.kansoku, "diagnose", "--json", trace)
        jobs = [diagnosis, *diagnosis.get("other_jobs", [])]
        return [(finding["kind"], finding["detail"]) for job in jobs for finding in job["findings"]]

    def record(self, cause, seed, amount, twin, steps, more=()):
        trace = os.path.join(self.out, f"{cause}-{'twin' if twin else 'cause'}-{seed}.pftrace")
        if cause == "clock":
            slow = seed % RANKS
            self.speed(1000 if twin else amount, slow)
            amount = slow
        said = self.run(cause, [*self.words(cause, seed, amount, "always", twin, steps), *self.more(cause, twin), *more], trace)
        return said, self.report(trace)

    def hang(self, seed, twin):
        """Verdicts of `kansoku hang` until it names something, or the program ends."""
        trace = os.path.join(self.out, f"stuck-{'twin' if twin else 'cause'}-{seed}.pftrace")
        words = self.words("stuck", seed, 0, "always", twin, 40)
        command = kit.record_command(self.kansoku, trace, "-q", "--no-bpf", "--cuda", "--force", of=self.command("stuck", words))
        seen, deadline = {}, time.monotonic() + 60
        job = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=self.first,
                               start_new_session=True)
        try:
            while job.poll() is None and time.monotonic() < deadline:
                pid = self.process_of(job.pid)
                if pid is None:
                    time.sleep(0.05)  # allowed: between two looks
                    continue
                with contextlib.suppress(kit.Wrong):
                    answer = kit.answer(self.kansoku, "hang", "--json", "-p", pid)["processes"][0]
                    seen.setdefault(answer["verdict"], answer)
                    if answer["verdict"] == "stuck_kernel":
                        break
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
        return seen

    def process_of(self, parent):
        """The process below `parent` that runs the program."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                at, is_it = int(entry), os.readlink(f"/proc/{entry}/exe") == os.path.realpath(self.program)
                while is_it and at > 1:
                    with open(f"/proc/{at}/stat", encoding="utf-8") as file:
                        at = int(file.read().rpartition(")")[2].split()[1])
                    if at == parent:
                        return int(entry)
            except OSError:
                continue
        return None


def launch(words):
    """One process a rank, each with a device; the rank that is SLOW (amount=) has another name for its device in a twin."""
    kansoku, program, words = words[1], words[2], words[3:]
    slow = next(int(word.split("=")[1]) for word in words if word.startswith("amount="))
    jobs = []
    for rank in range(RANKS):
        environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": "29571"}
        if "twin=1" in words and rank == slow:
            environment["KANSOKU_SOFTGPU_NAME"] = "Kansoku software device, other model"
        jobs.append(subprocess.Popen([kansoku, "run", "--softgpu", "--devices", str(RANKS), "--memory", "64M", "--", program, *words],
                                     env=environment, stdout=subprocess.PIPE, text=True))
    for rank, job in enumerate(jobs):
        for line in job.communicate()[0].splitlines():
            if line.startswith("{"):
                print(json.dumps({**json.loads(line), "rank": rank}), flush=True)


def finding_text(finding):
    share = "" if finding.get("share") is None else f" {100 * finding['share']:.1f} %"
    return f"{finding['kind']}/{finding['detail']}{share}"


def judge(cause, report):
    """named first, named but not first, silent, or wrong; by the diagnosis too."""
    named = [(finding["kind"], finding["detail"]) for finding in report["findings"]]
    if not named:
        return "silent"
    if named[0] == CAUSES[cause].named:
        return "named first" if report["diagnosed"][:1] == named[:1] else f"named first, diagnosed {report['diagnosed']}"
    return "named, not first" if CAUSES[cause].named in named else "wrong"


class Table(kit.Table):
    def __init__(self, title=""):
        super().__init__(title, "cause", "seed", "amount", "costs", "step with it, recorded", "said", "says")

    def cause(self, name, seed, amount, cost, step_us, said, verdict, is_right):
        costs = "" if cost is None else f"{100 * cost:.1f} %"
        step = "" if step_us is None else f"{step_us / 1000:.1f} ms"
        self.row(name, seed, f"{amount:.0f}", costs, step, said, verdict, right=is_right)


def step_of(said):
    return max((row["planted_us"] for row in said), default=None)


def evaluate(bench, cause, seed, steps):
    of, table = CAUSES[cause], Table()
    if of.is_state:
        amount, cost = STATE_AMOUNTS[cause][seed % 3], None
    else:
        amount, cost, _ = bench.calibrate(cause, seed)
    if cause == "stuck":
        for twin in (False, True):
            seen = bench.hang(seed, twin)
            names = [name for one in seen.get("stuck_kernel", {}).get("stuck", []) for name in one["operations"]]
            said = ", ".join(seen) + (": " + ", ".join(names) if names else "")
            is_named = bool(names) and all(name == "kernel backward" for name in names)
            right = "stuck_kernel" not in seen and bool(seen) if twin else is_named
            verdict = ("nothing" if right else "named") if twin else ("named first" if right else "silent" if not names else "wrong")
            table.cause(of.twin if twin else cause, seed, amount, None, None, said, verdict, right)
        return table
    said, report = bench.record(cause, seed, amount, False, steps)
    verdict = judge(cause, report)
    texts = "; ".join(finding_text(finding) for finding in report["findings"])
    table.cause(cause, seed, amount, cost, step_of(said), texts, verdict, verdict == "named first" and (cost is None or abs(cost - TARGET) <= TOLERANCE))
    cost = None if of.is_state else bench.twin_cost(cause, seed, amount)
    said, report = bench.record(cause, seed, amount, True, steps)
    texts = "; ".join(finding_text(finding) for finding in report["findings"])
    is_silent = not report["findings"] and not report["diagnosed"]
    is_right = is_silent and (cost is None or cost <= TWIN_MAX)
    table.cause(of.twin, seed, amount, cost, step_of(said), texts, "nothing" if is_silent else "named", is_right)
    return table


def gate(bench):
    """What no load can change: states of memory, and a clock under the model's clock. Twins: nothing of their own kind."""
    problems = []
    for cause, amount in (("leak", 1 << 20), ("oom", 32 << 20)):
        for twin in (False, True):
            report = bench.record(cause, 5, amount, twin, 48)[1]
            findings = report["findings"]
            named = [(finding["kind"], finding["detail"]) for finding in findings if finding["kind"] == "memory_pressure"]
            if named != ([] if twin else [CAUSES[cause].named]):
                problems.append(f"{cause}, twin {twin}: {named}")
            if not twin and (findings[0]["kind"], findings[0]["detail"]) != CAUSES[cause].named:
                problems.append(f"{cause}: not first, but {finding_text(findings[0])}")
            if not twin and "causes_launch" not in " ".join(findings[0]["evidence"]):
                problems.append(f"{cause}: no stack of who allocates: {findings[0]['evidence']}")
            if not twin and report["diagnosed"][:1] != [CAUSES[cause].named]:
                problems.append(f"{cause}: the diagnosis says {report['diagnosed']}")
    bench.environment["KANSOKU_SOFTGPU_CLOCK"] = "model"
    for twin in (False, True):
        report = bench.record("clock", 5, 900, twin, 1000, ["turns=6000"])[1]
        named = [(finding["kind"], finding["detail"], finding["ranks"]) for finding in report["findings"]]
        if named != ([] if twin else [(*CAUSES["clock"].named, [5 % RANKS])]):
            problems.append(f"clock, twin {twin}: {named}")
    return problems


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("causes", nargs="+", choices=[*CAUSES, "all", "gate"])
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--plain", action="store_true", help="no realtime priority for the program and the recorder")
    parser.add_argument("--keep", help="a folder for the recordings")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--again", action="store_true", help="causes that are done at this commit, too")
    options = parser.parse_args()
    kit.need_root()
    kit.need_clang()
    out = options.keep or tempfile.mkdtemp()
    os.makedirs(out, exist_ok=True)
    bench = Bench(options, out)
    bench.build()
    if options.causes == ["gate"]:
        report.part("leak, out of memory and a lower clock are named, their twins are not", gate, bench)
        return
    plan = [kit.Part([cause, int(seed), options.steps, options.plain], f"{cause} {seed}",
                     lambda cause=cause, seed=seed: evaluate(bench, cause, int(seed), options.steps))
            for cause in (CAUSES if "all" in options.causes else options.causes) for seed in options.seeds.split(",")]
    kit.Parts(os.path.join(ROOT, "build/cuda-causes")).run_tables(plan, report, options.again)
    if not options.keep:
        shutil.rmtree(out)


if sys.argv[1:2] == ["launch"]:
    launch(sys.argv[2:])
else:
    kit.run(main)
