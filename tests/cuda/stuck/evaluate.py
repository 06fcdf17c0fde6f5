#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores `kansoku hang` on real programs on the software GPU. Prints the tables of docs/measurements/cuda-stuck.md.

    evaluate.py kernel|graph|collective [--runs 10]   what never ends, at random moments: the right set, rank, stack, and when
    evaluate.py clean [--runs 20]                     first use, evaluation, checkpoints, long kernels: nothing is to be called stuck
    evaluate.py time [--runs 20]                      how long an answer takes
    evaluate.py watch [--runs 10]                     the same faults and clean programs under `kansoku watch`: which incidents it raises, and when
    evaluate.py incidents [--runs 3]  hangs of a job that `kansoku watch` has learnt: one incident, whatever else it saw of them
    evaluate.py all
    evaluate.py gate                                  one of each, however long it takes: a test
--mode sampled|every|both, --seed N, --kansoku FILE, --keep FOLDER. An answer is sought again and again, by one `kansoku hang` after the
other; it is right if everything about it is. The status is 1 if an answer was wrong, late by more than 2 s, or missing. Needs root, clang 19.
"""
import contextlib
import json
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import kit  # noqa: E402
from kit import Wrong, expect  # noqa: E402
from job import PATIENCE_S, ROOT, Job, build, functions, in_order, now  # noqa: E402

FLOOR_S, LATE_S, GIVE_UP_S = 5.0, 2.0, 12.0
RANKS = 4
WAIT_PYTHON = ["wait_for_device", "train_step", "train", "main"]
LAUNCH_NATIVE = ["rank_compute"]
WAIT_NATIVE = ["cuStreamSynchronize", "rank_wait", "main"]


def thread_in(process, call):
    found = [thread for thread in process["threads"] if call in thread["call"]]
    expect(found, f"no thread waits in {call}")
    return found[0]


def check_stacks(process, python):
    thread = thread_in(process, "cuStreamSynchronize")
    expect(in_order(python, thread["python"]), f"Python stack {functions(thread['python'])}")
    expect(in_order(WAIT_NATIVE, thread["native"]), f"native stack {functions(thread['native'])}")


def check_stuck(process, operation):
    expect(process["verdict"] == "stuck_kernel", f"verdict {process['verdict']} ({process['why']})")
    first = process["stuck"][0]
    expect(first["kind"] == "stuck" and operation in first["operations"], f"set {first['operations']}")
    return first


class Planted:
    """One way to get stuck: `plan`, `faults`; when it was (`moment`), and what is right to say (`check`)."""

    ranks = RANKS
    is_probed = False  # another recorder is beside
    own_line = ""  # the innermost line of the program's own, where Python's library is deeper

    def moment(self, job):
        job.wait(lambda: job.logged("hang"), "the planted fault")
        return now()


class Kernel(Planted):
    def __init__(self, chance):
        self.rank = chance.randrange(RANKS)
        self.what = f"backward {chance.randrange(160, 800)} of rank {self.rank}"
        self.plan = "train:1000"
        self.faults = {self.rank: f"kernel=*backward*:{self.what.split()[1]}:hang"}

    def check(self, job, answer):
        process = answer["processes"][self.rank]
        first = check_stuck(process, "kernel backward")
        check_stacks(process, WAIT_PYTHON)
        sites = [site for site in process["launched_by"] if site["operation"] == "kernel backward"]
        # Return probes of another recorder may hide who calls the driver.
        expect(self.is_probed or (sites and all(in_order(LAUNCH_NATIVE, site["native"]) for site in sites)),
             f"launched by {[functions(site['native']) for site in sites]}")
        expect(first["device"] == self.rank, f"device {first['device']}")
        expect(answer["missing"] == [job.pids[self.rank]], f"missing {answer['missing']}")
        for rank, other in enumerate(answer["processes"]):
            expect(rank == self.rank or other["waits_for"] == answer["missing"], f"rank {rank} waits for {other['waits_for']}")
        return len(first["operations"])


class Graph(Planted):
    ranks = 1

    def __init__(self, chance):
        self.kernel = chance.choice(["attention", "project", "normalise"])
        self.what = f"{self.kernel} {chance.randrange(80, 400)}"
        self.plan = "graph:400"
        self.faults = {0: f"kernel=*{self.kernel}*:{self.what.split()[1]}:hang"}

    def check(self, job, answer):
        process = answer["processes"][0]
        expect(process["verdict"] == "stuck_kernel", f"verdict {process['verdict']} ({process['why']})")
        first = process["stuck"][0]
        expect(all(one.startswith("graph of 12 kernels") for one in first["operations"]), f"set {first['operations']}")
        expect(self.kernel in first["graph_kernels"], f"kernels {first['graph_kernels']}")
        check_stacks(process, ["wait_for_device", "graph", "main"])
        return len(first["graph_kernels"])


class Collective(Planted):
    def __init__(self, chance, how):
        self.rank, self.how = chance.randrange(RANKS), how
        self.steps = chance.randrange(40, 160)
        self.what = f"{how} after {self.steps} of rank {self.rank}"
        self.faults = {}
        last = "signal:1" if how == "signal" else "lock:1"
        self.skipped = 0
        self.own_line = "lock (" if how == "lock" else ""
        self.plan = f"train:{self.steps},{self.rank}/{last},train:50"
        if how == "skip":
            self.plan = f"train:{self.steps},{self.rank}/skip:1,train:20,{self.rank}/lock:1,train:1"
            self.skipped = 1

    def moment(self, job):
        name = "signal" if self.how == "signal" else "lock"
        job.wait(lambda: job.began(name), "the rank that stops")
        return job.began(name)[self.rank]

    def check(self, job, answer):
        expect(answer["missing"] == [job.pids[self.rank]], f"missing {answer['missing']}")
        done = self.steps + (20 - self.skipped if self.skipped else 0)
        sizes = []
        for rank, process in enumerate(answer["processes"]):
            if rank == self.rank:
                expect(process["collectives"] == done, f"rank {rank} handed over {process['collectives']}, not {done}")
                expect(process["collectives_pending"] == 0, "the missing one has a collective pending")
                continue
            first = check_stuck(process, "host function")
            expect(process["collectives"] == done + 1, f"rank {rank} handed over {process['collectives']}, not {done + 1}")
            expect(process["collectives_pending"] == 1, f"rank {rank} has {process['collectives_pending']} pending")
            check_stacks(process, WAIT_PYTHON)
            sizes.append(len(first["operations"]))
        missing = answer["processes"][self.rank]["threads"]
        expect(missing and in_order([self.how.replace("skip", "lock"), "main"], missing[0]["python"]), "stack of the missing one")
        return max(sizes)


def follow(job, planted):
    """(seconds from the deadline to the right answer, size of the set, answers that called something stuck and were not right)."""
    moment, wrong, why = planted.moment(job), [], "no answer"
    while now() < moment + FLOOR_S + GIVE_UP_S:
        answer = job.hang()
        try:
            size = planted.check(job, answer)
            late = answer["at"] - moment - FLOOR_S
            if late < -0.5:
                wrong.append(f"stuck {-late:.1f} s before the deadline")
            return late, size, wrong
        except Wrong as reason:
            why = str(reason)
            stuck = [process for process in answer["processes"] if process["verdict"] == "stuck_kernel"]
            if stuck:
                wrong.append(why)
    with open(os.path.join(job.folder, "last.json"), "w", encoding="utf-8") as file:
        json.dump(answer, file, indent=1)
    return None, 0, wrong + [f"never right: {why}"]


def planted_runs(options, library, folder, name, mode):
    make = {"kernel": Kernel, "graph": Graph}
    chance = random.Random(f"{options.seed} {name} {mode}")
    hows = ["lock", "signal", "skip"]
    rows, table = [], kit.Table(f"{name}, {mode}", "run", "planted", "after the deadline s", "size of the set", "not right before")
    for run in range(options.runs or 10):
        planted = Collective(chance, hows[run % len(hows)]) if name == "collective" else make[name](chance)
        with Job(options.kansoku, library, folder, planted.ranks, planted.plan, planted.faults, mode) as job:
            job.start()
            late, size, wrong = follow(job, planted)
        rows.append((late, size))
        table.row(run + 1, planted.what, "-" if late is None else f"{late:.2f}", size, "; ".join(dict.fromkeys(wrong)) or "-",
                  right=late is not None and late <= LATE_S and not any("before the deadline" in text for text in wrong))
    times = [late for late, _ in rows if late is not None]
    if times:
        table.say(f"\n{name}, {mode}: {len(times)} of {len(rows)} right, {min(times):.2f} to {max(times):.2f} s after the deadline, sets of "
              f"{min(size for late, size in rows if late is not None)} to {max(size for _, size in rows)}; {table.wrong} late, wrong or missing")
    return table


# Name, ranks, plan, faults, whether "unknown" is right to say.
CLEAN = [
    ("a first launch of 8 s", 1, "train:150,long:1,train:100", {0: "kernel=*long_one*:1:slow=8s"}, True),
    ("modules that load for 7 s", RANKS, "train:150,long:1,train:100", {rank: "cuModuleLoadData:1+:slow=7s" for rank in range(RANKS)}, True),
    ("evaluation by other kernels", RANKS, "train:150,evaluate:40,train:100", {}, True),
    ("evaluation by rank 0 alone, 9 s", RANKS, "train:150,0/evaluate:30,train:100", {0: "kernel=*perplexity*:1+:slow=300ms"}, True),
    ("evaluation: a known kernel over 8 times as much, 8 s", 1, "train:100,evaluate:2,train:100", {0: "kernel=*forward*:401:slow=8s"}, True),
    ("checkpoint: all hosts compute for 8 s", RANKS, "train:150,host:8,train:100", {}, False),
    ("checkpoint: rank 0's host computes for 8 s", RANKS, "train:150,0/host:8,train:100", {}, True),
    ("checkpoint: a copy of 256 MB that takes 7 s", RANKS, "train:150,save:256,train:100",
     {rank: "copy=DtoH:1:slow=7s" for rank in range(RANKS)}, True),
    ("a kernel of 4.5 s", RANKS, "train:200", {2: "kernel=*backward*:500:slow=4500ms"}, False),
    ("a kernel of 7 s whose past is 0.8 s", 1, "train:50,long:14,train:50",
     {0: "kernel=*long_one*:13:slow=7s;kernel=*long_one*:1+:slow=800ms"}, False),
]


def clean_runs(options, library, folder):
    modes = ["sampled", "every"] if options.mode == "both" else [options.mode]
    table = kit.Table("clean", "run", "program", "mode", "answers", "unknown", "stuck")
    for run in range(options.runs or 20):
        name, ranks, plan, faults, may_be_unknown = CLEAN[run % len(CLEAN)]
        mode = modes[run // len(CLEAN) % len(modes)]
        answers, unknown, stuck = 0, [], []
        with Job(options.kansoku, library, folder, ranks, plan, faults, mode) as job:
            job.start()
            while len(job.began("done")) < ranks and not job.is_over():
                answer = job.hang()
                answers += 1
                for process in answer["processes"]:
                    if process["verdict"] == "stuck_kernel":
                        stuck.append(f"{process['stuck'][0]['operations']} for {process['stuck'][0]['seconds']:.1f} s")
                    if process["verdict"] == "unknown":
                        unknown.append(process["why"])
            if len(job.began("done")) < ranks:
                stuck.append("the program ended early")
        table.row(run + 1, name, mode, answers, f"{len(unknown)}{': ' if unknown else ''}{'; '.join(sorted(set(unknown)))[:160]}",
                  f"{len(stuck)}{': ' if stuck else ''}{'; '.join(stuck[:2])}", right=not stuck and (may_be_unknown or not unknown))
    table.say(f"\nclean: {table.wrong} runs with an alarm")
    return table


def probed(kansoku, pids, folder):
    """A recorder beside the job, whose return probes hide return addresses on its stacks."""
    return kit.Recorder(kansoku, os.path.join(folder, "beside.pftrace"), "--probes", "cuda", "--force", pids=pids)


def gate(options, library, folder, report):
    """Each is named in the end, also beside another recorder, and what only takes its time is not."""
    def named(planted, is_probed):
        with contextlib.ExitStack() as stack:
            job = stack.enter_context(Job(options.kansoku, library, folder, planted.ranks, planted.plan, planted.faults))
            planted.is_probed = is_probed
            if is_probed:
                stack.enter_context(probed(options.kansoku, job.pids, folder))
            job.start()
            planted.moment(job)
            end, why = now() + PATIENCE_S, "no answer"
            while why and now() < end:
                try:
                    planted.check(job, job.hang())
                    why = ""
                except Wrong as reason:
                    why = str(reason)
            expect(not why, why)
            if planted.own_line:
                marked = [line.strip() for line in job.hang_text().splitlines() if "<- the program's own code" in line]
                expect(any(planted.own_line in line for line in marked), f"the lines that are marked: {marked}")

    def waits():
        with Job(options.kansoku, library, folder, 2, "train:150,0/host:7,train:20") as job:
            job.start()
            answers = 0
            while not job.is_over():
                answers += 1
                for process in job.hang()["processes"]:
                    expect(process["verdict"] != "stuck_kernel", f"called stuck: {process}")
            expect(answers, "nothing was asked")
    chance = random.Random(options.seed)
    for planted, is_probed in ((Kernel(chance), False), (Graph(chance), False), (Collective(chance, "lock"), False), (Kernel(chance), True)):
        report.part(f"{planted.what}{', beside a recorder' if is_probed else ''}", named, planted, is_probed)
    report.part("who waits for rank 0, which computes", waits)


def watch_runs(options, library, folder):
    """Kernels and collectives in turns, then each clean program once."""
    chance, times = random.Random(f"{options.seed} watch"), []
    table = kit.Table("watch", "run", "planted", "after the deadline s", "incident")
    for run in range(options.runs or 10):
        planted = Kernel(chance) if run % 2 == 0 else Collective(chance, ["lock", "signal", "skip"][run // 2 % 3])
        with Job(options.kansoku, library, folder, planted.ranks, planted.plan, planted.faults, "watch") as job:
            job.start()
            moment = planted.moment(job)
            while not job.incidents() and now() < moment + FLOOR_S + GIVE_UP_S:
                time.sleep(0.02)  # allowed: the pause of a poll loop
            late, seen = now() - moment - FLOOR_S, job.incidents()
            right = bool(seen) and seen[0]["ranks"] == [planted.rank] and (run % 2 == 1 or "kernel backward" in seen[0]["summary"])
        times += [late] if right else []
        table.row(run + 1, planted.what, f"{late:.2f}", seen[0]["summary"][:150] if seen else "none", right=right and -0.5 <= late <= LATE_S)
    alarms = 0
    for name, ranks, plan, faults, _ in CLEAN:
        with Job(options.kansoku, library, folder, ranks, plan, faults, "watch") as job:
            job.start()
            job.wait(lambda: len(job.began("done")) == ranks or job.is_over(), name)
            seen = job.incidents()
        alarms += bool(seen)
        table.say(f"{name}: {seen[0]['summary'] if seen else 'nothing'}")
    table.say(f"\nwatch: {len(times)} of {options.runs or 10} right" + (f", {min(times):.2f} to {max(times):.2f} s after the deadline" if times else "") +
          f"; {alarms} of {len(CLEAN)} clean programs with an alarm")
    table.wrong += alarms
    return table


class Learnt:
    """A job that hangs once it is learnt: a kernel that ended ten times before, or a rank that stops. `phase`: of that rank, before it."""

    def __init__(self, chance, how):
        self.rank, self.how = chance.randrange(RANKS), how
        self.phase = {"kernel": "evaluate"}.get(how, how)
        before = f"{self.rank}/evaluate:10," if how == "kernel" else ""
        self.plan = f"{before}{self.rank}/until:1,{self.rank}/{self.phase}:1,train:1000000"
        self.faults = {self.rank: "kernel=*perplexity*:11:hang"} if how == "kernel" else {}
        self.what = f"{how} of rank {self.rank}"


def incident_runs(options, library, folder):
    """Kernels, ranks in a lock and stopped ranks in turns; 12 s of each hang."""
    chance, count = random.Random(f"{options.seed} incidents"), options.runs or 3
    table = kit.Table("incidents", "run", "planted", "incidents", "its kinds, in order", "seems to begin, s after the fault", "right")
    for run in range(count):
        planted = Learnt(chance, ["kernel", "lock", "signal"][run % 3])
        with Job(options.kansoku, library, folder, RANKS, planted.plan, planted.faults, "watch", learn="30s") as job:
            job.start()
            job.wait(job.has_learnt, "a detector that has learnt", 5 * PATIENCE_S)
            at, wall = now(), time.time()
            job.end_until()
            while now() < at + FLOOR_S + GIVE_UP_S:
                time.sleep(0.05)  # allowed: the pause of a poll loop
            lines = job.all_incidents()
        first = {}
        for line in lines:
            first.setdefault(line["kind"], int(line["begin_ns"]) / 1e9 - wall)
        last = {line["id"]: line for line in lines}
        right = len(last) == 1 and all(one["kind"] == "stuck_kernel" and one["ranks"] == [planted.rank] and one["evidence"] for one in last.values())
        table.row(run + 1, planted.what, len(last), ", ".join(first), ", ".join(f"{at:.2f}" for at in first.values()), "yes" if right else "no", right=right)
    table.say(f"\nincidents: {count - table.wrong} of {count} hangs are one incident of kind stuck_kernel with the detector's evidence")
    return table


def time_runs(options, library, folder):
    rows = []
    with Job(options.kansoku, library, folder, RANKS, "train:150,1/lock:1,train:50") as job:
        job.start()
        job.wait(lambda: job.began("lock"), "the rank that stops")
        for ranks in ([0], [0, 1, 2, 3]):
            for _ in range(options.runs or 20):
                rows.append((len(ranks), job.hang(ranks)["took_s"]))
    table = kit.Table("", "processes named", "answers", "median s", "longest s")
    for count in (1, RANKS):
        times = sorted(took for number, took in rows if number == count)
        table.row(count, len(times), f"{times[len(times) // 2]:.2f}", f"{times[-1]:.2f}")
    table.wrong = sum(took > 2 for _, took in rows)
    return table


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("what", choices=["kernel", "graph", "collective", "clean", "time", "watch", "incidents", "all", "gate"])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=["sampled", "every", "both"], default="both")
    parser.add_argument("--keep")
    parser.add_argument("--again", action="store_true", help="parts that are done at this commit, too")
    options = parser.parse_args()
    kit.need_root()
    kit.need_clang()
    modes = ["sampled", "every"] if options.mode == "both" else [options.mode]
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or made
        os.makedirs(folder, exist_ok=True)
        library = build(options.kansoku, folder)
        if options.what == "gate":
            gate(options, library, folder, report)
            return
        runs = [(name, mode, lambda name=name, mode=mode: planted_runs(options, library, folder, name, mode))
                for name in ("kernel", "graph", "collective") for mode in modes]
        runs += [(do.__name__.removesuffix("_runs").replace("incident", "incidents"), options.mode, lambda do=do: do(options, library, folder))
                 for do in (clean_runs, watch_runs, incident_runs, time_runs)]
        plan = [kit.Part([name, mode, options.runs, options.seed], f"{name}, {mode}", do) for name, mode, do in runs if options.what in ("all", name)]
        kit.Parts(os.path.join(ROOT, "build/cuda-stuck")).run_tables(plan, report, options.again)


kit.run(main)
