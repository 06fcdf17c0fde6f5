#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kansoku on PyTorch as people run it: real jobs of `make deps-torch`, recorded, diagnosed, held against what the jobs say of themselves.

  run.py                       every part; finished runs of this commit are skipped
  run.py starts                ten ways to start a job x healthy, hook on rank 2, hook on rank 0, attached in mid-run: twice each
  run.py pipelines             GPipe, 1F1B, interleaved; healthy, unequal stages, 2 x 2, one stage slow
  run.py files                 profiles and Flight Recorder dumps that PyTorch writes
  run.py hangs                 jobs that stand, and `kansoku hang` attached when they do; jobs that are slow at that moment
  run.py gate                  a few of these, without times and places: a test
  run.py --only WORD           runs whose title has that word
  run.py --minutes 30          begins no run after so long; the same command goes on
  run.py --table               only the scores so far
--environment NAME: of environment.py [2.15-py3.11]. Needs root and eBPF."""
import collections
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import environment  # noqa: E402
import kit  # noqa: E402

JOBS = os.path.join(HERE, "jobs")
DOSE_MS, NEAR = 35.0, 0.15
LAUNCHED = ["torchrun", "--nproc-per-node", "4"]
MODULE = ["python3", "-m", "torch.distributed.run", "--nproc-per-node", "4"]
STARTS = {
    "torchrun": [*LAUNCHED, "train.py", "launched", "ddp"],
    "module": [*MODULE, "train.py", "launched", "ddp"],
    "spawn": ["python3", "train.py", "spawn", "ddp"],
    "fork": ["python3", "train.py", "fork", "ddp"],
    "thread": ["python3", "train.py", "thread", "ddp"],
    "lightning": ["python3", "lightning_job.py"],
    "ray": ["python3", "ray_job.py"],
    "transformers": [*LAUNCHED, "transformers_job.py"],
    "deepspeed": [*LAUNCHED, "deepspeed_job.py"],
    "fsdp": [*LAUNCHED, "train.py", "launched", "fsdp"],
}
# The hook's rank; whether the recorder comes when the job trains already.
SITUATIONS = {"healthy": (None, False), "hook on 2": (2, False), "hook on 0": (0, False), "attached": (2, True)}
SCHEDULES = ["gpipe", "1f1b", "interleaved"]
ATTACHED = "10s"
# What stands on rank 2, and where the answer has to say that it does.
HANGS = {
    "stop": ("dead_process", None), "absent": ("missing_rank", "clean_up_after_error"), "loop": ("missing_rank", "search_best_split"),
    "native": ("missing_rank", "derive_key"), "asleep": ("missing_rank", "clean_up_after_error"), "more": ("mismatched_collective", "stand"),
    "less": ("mismatched_collective", "stand"), "receive": ("missing_rank", "stand"), "lock": ("deadlock", "run"),
    "order": ("mismatched_collective", "reduce_statistics"), "pipe": ("missing_rank", "save_checkpoint"), "worker": ("stuck_input", "read_remote_shard"),
}
STANDS_S = 20  # before somebody looks

Run = collections.namedtuple("Run", "part name command rank attached number")


def end_below(pid):
    """Ends what a launcher started, which outlives a launcher that is killed."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    below, fresh = {pid}, True
    while fresh:
        fresh = {one for one, parent in parents.items() if parent in below} - below
        below |= fresh
    ticks = {one: kit.start_ticks(one) for one in below - {pid}}
    for one, started in ticks.items():
        with contextlib.suppress(OSError):
            kit.end_process(one, started)


class Lab:
    def __init__(self, options):
        self.kansoku = options.kansoku
        self.bin = os.path.dirname(environment.python_of(options.environment))

    def settings(self, **more):
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1", **more}

    @staticmethod
    def command(words):
        return [os.path.join(JOBS, word) if word.endswith(".py") else word for word in words]

    def of_fault(self, rank, steps, kind="hook"):
        fault = {} if rank is None else {"FAULT": kind, "FAULT_RANK": str(rank), "DOSE": str(DOSE_MS / 1000)}
        return self.settings(STEPS=str(steps), **fault)

    def recorded(self, run, trace, fault="hook"):
        """What the job said."""
        if not run.attached:
            done = kit.record(self.kansoku, trace, "-q", "--force", of=self.command(run.command), env=self.of_fault(run.rank, 120, fault), timeout=300)
            kit.expect(done.returncode == 0, f"the job ended with status {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
            return done.stdout
        with kit.Job(self.command(run.command), env=self.of_fault(run.rank, 100000), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                     text=True) as job:
            try:
                kit.expect(any(line.rstrip().endswith("training") for line in job.stdout), "the job never trained")
                done = kit.record(self.kansoku, trace, "-q", "--force", "--duration", ATTACHED, pids=[job.pid], timeout=120)
                kit.expect(done.returncode == 0, f"record: {done.stderr[-2000:]}")
            finally:
                end_below(job.pid)
        return ""

    def diagnosed(self, path):
        return kit.answer(self.kansoku, "diagnose", "--json", path)


def ranks_of(answer):
    return sorted(one["rank"] for one in answer["steps"].get("phases") or answer.get("patterns") or [])


def blaming(answer):
    """Findings that name some of the ranks, and not all of them."""
    return [one for one in answer["findings"] if 0 < len(one["ranks"]) < max(len(ranks_of(answer)), 2)]


def shown(finding):
    return f"{finding['kind']}{finding['ranks']} {finding['function']} {kit.cost(finding)} {kit.basis(finding)}"


def judged(answer, rank, true_ms):
    """In words, one item for each thing that is wrong."""
    found = blaming(answer)
    if rank is None:
        return [f"blamed: {shown(one)}" for one in found]
    if not found:
        return ["nobody is named"]
    first, wrong = found[0], []
    if first["ranks"] != [rank]:
        wrong.append(f"ranks {first['ranks']}")
    if first["kind"] not in ("slow_forward", "slow_worker"):
        wrong.append(first["kind"])
    if "slow_activation_hook" not in (first["function"] or ""):
        wrong.append(f"in {first['function']}")
    cost = first["cost_ms_per_step"]
    if cost is None or abs(cost - true_ms) > NEAR * true_ms:
        wrong.append(f"{cost} ms for {true_ms:.1f}")
    return wrong


def hook_ms(said, calls_a_step=1):
    """What the hook took a step by its own clock; the dose where the job did not come to say it."""
    told = re.search(r"hook rank=\d+ calls=(\d+) ms=([\d.]+)", said)
    return calls_a_step * (float(told[2]) / int(told[1]) if told and int(told[1]) else DOSE_MS)


def recording(lab, run):
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.pftrace")
        said = lab.recorded(run, trace)
        answer = lab.diagnosed(trace)
    wrong = judged(answer, run.rank, hook_ms(said))
    if ranks_of(answer) != [0, 1, 2, 3]:
        wrong.append(f"ranks of the job: {ranks_of(answer)}")
    return {"wrong": wrong, "findings": [shown(one) for one in answer["findings"]], "steps": answer["steps"]["count"]}


def starts(lab):
    for number, (name, words), (situation, (rank, attached)) in itertools.product((1, 2), STARTS.items(), SITUATIONS.items()):
        run = Run("starts", f"{name}, {situation}", words, rank, attached, number)
        yield run, lambda run=run: recording(lab, run)


def pipelines(lab):
    """Three schedules: nobody is to blame in four forms; one stage is slow in five, by sleeping or by computing."""
    for schedule in SCHEDULES:
        # A pipeline's number of micro-batches is at least that of its stages, but for the first schedule.
        few = ["2"] if schedule == "gpipe" else ["twice", "2"]
        forms = [("healthy", [], None, "none"), ("unequal", ["unequal"], None, "none"), ("2 x 2", ["twice"], None, "none"),
                 ("two micro-batches", few, None, "none"), ("sleeps on 0", [], 0, "hook"), ("computes on 1", [], 1, "work"),
                 ("sleeps on 2", [], 2, "hook"), ("computes on 3", [], 3, "work"), ("2 x 2, sleeps on 3", ["twice"], 3, "hook")]
        for name, more, rank, fault in forms:
            run = Run("pipelines", f"{schedule}, {name}", [*LAUNCHED, "pipeline.py", schedule, *more], rank, False, 1)
            yield run, lambda run=run, fault=fault: pipeline(lab, run, fault)
    for schedule in SCHEDULES[:2]:
        for number in (1, 2):
            run = Run("pipelines", f"{schedule}, equal cut", [*LAUNCHED, "pipeline.py", schedule], None, False, number)
            yield run, lambda run=run: equal_cut(lab, run)


def equal_cut(lab, run):
    """Stages whose work is a device's, so that processors are no limit: the promised step against that of the equal cut."""
    took = []
    for stage_ms in ("10,10,20,10", "12.5,12.5,12.5,12.5"):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "run.pftrace")
            os.environ["STAGE_MS"] = stage_ms
            lab.recorded(run, trace)
            del os.environ["STAGE_MS"]
            answer = lab.diagnosed(trace)
        took.append((answer["steps"]["median_ms"], answer["pipeline"]["passes_ms"], answer["pipeline"]["equal_ms"]))
    promised, saved = took[0][1] - took[0][2], took[0][0] - took[1][0]
    wrong = [] if abs(saved - promised) <= NEAR * promised else [f"promised {promised:.1f} ms, saved {saved:.1f}"]
    return {"wrong": wrong + [f"blamed: {shown(one)}" for one in blaming(answer)], "promised_ms": promised, "saved_ms": saved,
            "step_ms": [one[0] for one in took]}


def idle_by_formula(words):
    """Of P stages with M micro-batches in v parts a rank each is idle for P - 1 of v M + P - 1 passes."""
    stages, parts = (2 if "twice" in words else 4), (2 if "interleaved" in words else 1)
    micro_batches = next((int(word) for word in words[words.index("pipeline.py"):] if word.isdigit()), 4)
    return (stages - 1) / (parts * micro_batches + stages - 1)


def pipeline(lab, run, fault):
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.pftrace")
        said = lab.recorded(run, trace, fault)
        answer = lab.diagnosed(trace)
    wrong = judged(answer, run.rank, hook_ms(said, calls_a_step=4))
    sent = sum(map(int, re.findall(r" sent=(\d+)", said)))
    if answer.get("messages") != {"matched": sent, "sends_alone": 0, "receives_alone": 0}:
        wrong.append(f"messages: {answer.get('messages')}, {sent} sent")
    found, formula = answer.get("pipeline"), idle_by_formula(run.command)
    if found is None:
        wrong.append("no pipeline")
    elif run.rank is None and "unequal" not in run.name and abs(found["bubble_share"] - formula) > NEAR * formula:
        wrong.append(f"bubble {found['bubble_share']:.3f} for {formula:.3f}")
    is_unclear = {"interleaved", "twice"} <= set(run.command)
    micro_batches = None if is_unclear else 2 if "2" in run.command else 4
    if found and found["micro_batches"] != micro_batches:
        wrong.append(f"{found['micro_batches']} micro-batches for {micro_batches}")
    if run.name.endswith("unequal") and not any("stage 2, counted from 0, has" in note for note in answer["notes"]):
        wrong.append("the unequal stage is not told")
    shares = {key: found[key] for key in ("bubble_share", "uneven_share", "passes_ms", "equal_ms")} if found else {}
    return {"wrong": wrong, "findings": [shown(one) for one in answer["findings"]], "steps": answer["steps"]["count"], **shares,
            "formula": formula}


def written(lab, kind, settings):
    """The files of a job, in a folder of their own, and what it said."""
    folder = tempfile.TemporaryDirectory()
    command = lab.command([*LAUNCHED, "files.py", kind, folder.name])
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120, check=False)
    kit.expect(done.returncode == 0 or kind == "recorder", f"the job ended with status {done.returncode}: {done.stderr[-2000:]}")
    return folder, done.stdout


def profiled(lab, rank, stack):
    folder, said = written(lab, "profiler", {**lab.of_fault(rank, 32), "STACK": stack})
    with folder:
        answer = lab.diagnosed(folder.name)
    wrong = judged(answer, rank, hook_ms(said))
    if stack == "0":  # there is no function to name, and the peers' wait is the cost
        wrong = [one for one in wrong if not one.startswith("in ") and " ms for " not in one]
    return {"wrong": wrong, "findings": [shown(one) for one in answer["findings"]], "steps": answer["steps"]["count"]}


def dumped(lab, hang, form):
    folder, _ = written(lab, "recorder", lab.settings(HANG=hang))
    with folder:
        for name in os.listdir(folder.name):
            if name.endswith(".json") != (form == "JSON"):
                os.unlink(os.path.join(folder.name, name))
        answer = lab.diagnosed(folder.name)
    verdicts = [(one["verdict"], one["ranks"]) for one in answer["findings"]]
    wanted = {"sleep": [("missing_rank", [2])], "skip": [("mismatched_collective", [2])], "none": []}[hang]
    return {"wrong": [] if verdicts == wanted else [f"{verdicts}, not {wanted}"], "findings": [shown(one) for one in answer["findings"]], "steps": 0}


def files(lab):
    for number, stack, rank in itertools.product(range(1, 11), "10", (None, 2)):
        title = f"profile, {'healthy' if rank is None else 'hook'}, {'stacks' if stack == '1' else 'no stacks'}"
        yield Run("files", title, [], rank, False, number), lambda stack=stack, rank=rank: profiled(lab, rank, stack)
    for number, form, hang in itertools.product(range(1, 5), ("pickle", "JSON"), ("sleep", "skip", "none")):
        yield Run("files", f"dumps, {hang}, {form}", [], None, False, number), lambda form=form, hang=hang: dumped(lab, hang, form)


def looked_at(lab, words, mode, wait_s):
    """What `kansoku hang` says of a job that has been at its step for so long, and how many seconds it takes."""
    with kit.Job(lab.command([*LAUNCHED, "hang.py", *words]), env=lab.settings(MODE=mode), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                 text=True) as job:
        try:
            if words[0] != "absent":
                kit.expect(any("at step" in line for line in job.stdout), "the job never came to its step")
            time.sleep(wait_s)  # allowed: the hang has to stand for a while
            kit.expect(job.poll() is None, "the job ended")
            begin = time.monotonic()
            done = subprocess.run([lab.kansoku, "hang", "-p", str(job.pid), "--json"], capture_output=True, text=True, timeout=60, check=False)
            kit.expect(done.stdout.startswith("{"), f"hang: status {done.returncode}: {done.stderr[-2000:]}")
            return json.loads(done.stdout), done.returncode, time.monotonic() - begin
        finally:
            end_below(job.pid)


def hung(lab, kind, mode):
    answer, status, seconds = looked_at(lab, [kind], mode, STANDS_S)
    verdict, function = HANGS[kind]
    diagnosis, wrong = answer["diagnosis"], []
    found = [one for one in diagnosis["findings"] if one["kind"] in ("hang", "stopped")]
    if verdict is None:
        wrong += [f"named: {shown(one)}" for one in found]
        wrong += [] if any(function in note for note in diagnosis["notes"]) else [f"notes {diagnosis['notes']}"]
    elif not found:
        wrong.append(f"nobody is named; notes {diagnosis['notes']}")
    else:
        first = found[0]
        wrong += [] if first["ranks"] == ([] if kind == "order" else [2]) else [f"ranks {first['ranks']}"]
        wrong += [] if first["verdict"] == verdict else [f"{first['verdict']}, not {verdict}"]
        wrong += [] if function is None or function in first["function"] else [f"in {first['function']}"]
    wrong += [] if status == (11 if verdict is None else 10) else [f"status {status}"]
    wrong += [] if seconds < 10 else [f"in {seconds:.0f} s"]
    return {"wrong": wrong, "findings": [shown(one) for one in found] + diagnosis["notes"], "steps": 0}


def slow(lab, kind, mode):
    answer, _, _ = looked_at(lab, [kind], mode, 15)
    found = [shown(one) for one in answer["diagnosis"]["findings"] if one["kind"] in ("hang", "stopped")]
    return {"wrong": found, "findings": found + answer["diagnosis"]["notes"], "steps": 0}


def hangs(lab):
    for number, mode, kind in itertools.product((1, 2), ("ddp", "fsdp"), HANGS):
        yield Run("hangs", f"{kind}, {mode}", [], 2, True, number), lambda mode=mode, kind=kind: hung(lab, kind, mode)
    for number, mode, kind in itertools.product((1, 2), ("ddp", "fsdp"), ("slow=30", "save=30", "program=30")):
        yield Run("hangs", f"{kind}, {mode}", [], None, True, number), lambda mode=mode, kind=kind: slow(lab, kind, mode)


PARTS = {"starts": starts, "pipelines": pipelines, "files": files, "hangs": hangs}
GATE = {"lightning, healthy", "lightning, hook on 0", "ray, hook on 2", "thread, hook on 2", "spawn, attached", "gpipe, healthy", "1f1b, computes on 1",
        "profile, hook, stacks", "dumps, sleep, JSON", "asleep, ddp", "stop, fsdp"}


def gate(lab, report):
    """Without times and places, which a loaded machine may take from a short run."""
    def once(do):
        return [one for one in do()["wrong"] if not one.startswith("in ") and " ms for " not in one]
    seen = set()
    for make in PARTS.values():
        for run, do in make(lab):
            if run.name in GATE and run.name not in seen:
                seen.add(run.name)
                report.part(run.name, once, do)


def print_table(results):
    rows = collections.defaultdict(list)
    for one in results:
        rows[(one["key"][0], one["key"][1])].append(one)
    print("\n| part | run | right | wrong answers |\n|---|---|---|---|")
    for (part, name), runs in rows.items():
        wrong = "; ".join(dict.fromkeys(text for one in runs for text in one["wrong"]))
        print(f"| {part} | {name} | {sum(not one['wrong'] for one in runs)} of {len(runs)} | {wrong[:200]} |")
    right = sum(not one["wrong"] for one in results)
    print(f"| all | | {right} of {len(results)} | |")


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "gate", []])
    parser.add_argument("--environment", default=environment.DEFAULT)
    parser.add_argument("--only")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    results = kit.Parts(os.path.join(kit.ROOT, "build/torch"))
    if options.table:
        print_table([one for one in results.results if "wrong" in one])
        return 0
    kit.need_root()
    lab = Lab(options)
    if options.parts == ["gate"]:
        gate(lab, report)
        return None
    plan = [kit.Part([run.part, run.name, run.number, options.environment], f"{run.part}: {run.name} ({run.number})", do)
            for name in options.parts or PARTS for run, do in PARTS[name](lab) if not options.only or options.only in run.name]
    is_over = results.run(plan, report, lambda one: "right" if not one["wrong"] else "WRONG " + json.dumps(one["wrong"]), options.minutes, options.again)
    print_table([one for one in results.results if "wrong" in one])
    return None if is_over else 0


if __name__ == "__main__":
    kit.run(main)
