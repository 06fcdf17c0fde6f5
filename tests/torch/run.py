#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kansoku on PyTorch as people run it: real jobs of `make deps-torch`, recorded, diagnosed, held against what the jobs say of themselves.

  run.py                       every part; finished runs of this commit are skipped
  run.py starts                ten ways to start a job x healthy, hook on rank 2, hook on rank 0, attached in mid-run: twice each
  run.py pipelines             GPipe, 1F1B, interleaved; healthy, unequal stages, 2 x 2, one stage slow
  run.py files                 profiles and Flight Recorder dumps that PyTorch writes
  run.py hangs                 jobs that stand, told by `kansoku hang` that comes late and by a recording; jobs that are slow at that moment
  run.py versions              torchrun's four runs and four hangs on each other environment that is installed
  run.py cost                  steps with a recorder, or the agent, against steps without, in pairs: DDP, FSDP2, Lightning, and DDP on Debian's PyTorch
  run.py gate                  a few of these, without times and places: a test
  run.py --only WORD           runs whose title has that word
  run.py --minutes 30          begins no run after so long; the same command goes on
  run.py --table               only the scores so far
--environment NAME: of environment.py [2.15-py3.11]. Needs root and eBPF."""
import collections
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(1, os.path.dirname(HERE))
import cost  # noqa: E402
import environment  # noqa: E402
import hangs  # noqa: E402
import kit  # noqa: E402
from lab import LAUNCHED, NEAR, Lab, Run, blaming, hook_ms, judged, recording, shown  # noqa: E402

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


def versions(lab):
    """On other versions of PyTorch and of Python: DDP alone."""
    keeps_calls = tuple(int(number) for number in lab.name.partition("-")[0].split(".")) >= (2, 11)
    for situation, (rank, attached) in SITUATIONS.items():
        run = Run("versions", f"torchrun, {situation}", STARTS["torchrun"], rank, attached, 1)
        yield run, lambda run=run: recording(lab, run)
    for kind in ("stop", "asleep", "more", "loop"):
        how = hangs.hung if kind != "loop" or keeps_calls else None
        yield Run("versions", f"{kind}, ddp", [], 2, True, 1), lambda kind=kind, how=how: how(lab, kind, "ddp") if how else hangs.noted(lab, kind)


PARTS = {"starts": starts, "pipelines": pipelines, "files": files, "hangs": hangs.hangs, "versions": versions, "cost": cost.cost}
GATE = {"lightning, healthy", "lightning, hook on 0", "ray, hook on 2", "thread, hook on 2", "spawn, attached", "gpipe, healthy", "1f1b, computes on 1",
        "profile, hook, stacks", "dumps, sleep, JSON", "asleep, ddp", "stop, fsdp"}


def gate(lab, report):
    """Without times and places, which a loaded machine may take from a short run."""
    def once(do):
        return [one for one in do()["wrong"] if not one.startswith("in ") and " ms for " not in one]
    seen = set()
    for part in PARTS:
        for run, do in PARTS[part](lab) if part not in ("versions", "cost") else ():
            if run.name in GATE and run.name not in seen:
                seen.add(run.name)
                report.part(run.name, once, do)


def print_table(results):
    rows = collections.defaultdict(list)
    for one in results:
        rows[(one["key"][0], one["key"][1], one["key"][3])].append(one)
    print("\n| part | run | on | right | wrong answers |\n|---|---|---|---|---|")
    for (part, name, environment_name), runs in rows.items():
        wrong = "; ".join(dict.fromkeys(text for one in runs for text in one["wrong"]))
        print(f"| {part} | {name} | {environment_name} | {sum(not one['wrong'] for one in runs)} of {len(runs)} | {wrong[:200]} |")
    right = sum(not one["wrong"] for one in results)
    print(f"| all | | | {right} of {len(results)} | |")


def told(result):
    figures = cost.shown(result) + ", " if "ratio" in result else ""
    return figures + ("right" if not result["wrong"] else "WRONG " + json.dumps(result["wrong"]))


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
    lab = Lab(options.kansoku, options.environment)
    if options.parts == ["gate"]:
        gate(lab, report)
        return None
    plan = []
    for part in options.parts or PARTS:
        others = [name for name in environment.names() if name != environment.DEFAULT] if part == "versions" else []
        for name in others:
            if not environment.is_whole(name):
                report.part(f"versions: {name}", environment.python_of, name)
        for one in [Lab(options.kansoku, name) for name in others if environment.is_whole(name)] or [lab]:
            plan += [kit.Part([run.part, run.name, run.number, one.name], f"{run.part}: {run.name} ({run.number}, {one.name})", do)
                     for run, do in PARTS[part](one) if not options.only or options.only in f"{run.name}, {one.name}"]
    is_over = results.run(plan, report, told, options.minutes, options.again)
    print_table([one for one in results.results if "wrong" in one])
    return None if is_over else 0


if __name__ == "__main__":
    kit.run(main)
