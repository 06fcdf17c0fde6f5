#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluates always-on watching on real jobs, in parts of at most half an hour; docs/measurements/watch-eval.md explains it.

  run.py list                  the parts and what is done
  run.py PART... | all         runs parts; `all` those that are not done yet, in the order of the list
  run.py table                 scores what is done, and the two baselines on the same features; prints Markdown
  run.py replay                lets the present program judge what done parts have recorded; table --replayed scores that
  run.py effect-ddp            every fault without an agent: what it does to the job's step
Needs root, Debian's python3-torch, python3-numpy and python3-sklearn; GPU parts clang 19. Results are in build/watch-eval.
"""
import json
import os
import random
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import ROOT, Impossible, Wrong, need  # noqa: E402
from guard import Guard  # noqa: E402
from faults import chosen  # noqa: E402
from session import Agent, add_line, environment_of, fresh, pause, run_faults, start_job  # noqa: E402

MINUTE = 60
CLEAN_S, FAULTS_S, SOAK_S = 15 * MINUTE, 27 * MINUTE, 24 * MINUTE
WARM_S, OFF_S = 60, 40  # before the first fault; between two
EFFECT_ON_S, EFFECT_OFF_S = 10, 8
FAULT_PARTS = {"ddp": 3, "gpu": 3}
SOAK_PARTS = 5


class Part:
    """`kind`: clean, faults, soak or effect; `needs`: the part whose model it starts with."""

    def __init__(self, name, kind, job, seconds, needs=None):
        self.name, self.kind, self.job, self.seconds, self.needs = name, kind, job, seconds, needs


def known_parts():
    parts = [Part(f"clean-{job}", "clean", job, CLEAN_S) for job in FAULT_PARTS]
    for job, count in FAULT_PARTS.items():
        parts += [Part(f"faults-{job}-{i + 1}", "faults", job, FAULTS_S, f"clean-{job}") for i in range(count)]
    parts += [Part(f"soak-clean-{i + 1}", "soak", "ddp", SOAK_S, "clean-ddp") for i in range(SOAK_PARTS)]
    parts += [Part(f"effect-{job}", "effect", job, 0) for job in FAULT_PARTS]
    return {part.name: part for part in parts}


def is_done(root, name):
    return os.path.exists(os.path.join(root, name, "part.json"))


class Folders(kit.Parts):
    """A part is a folder, and done once part.json is in it. Of any commit: what was recorded is judged again by later programs."""

    def __init__(self, root):
        super().__init__(root)
        self.root = root

    def result(self, key):
        return is_done(self.root, *key)

    def add(self, result):
        if "not_run" in result:
            add_line(os.path.join(self.root, result["key"][0], "not_run.jsonl"), {"reason": result["not_run"]})


def take_state(root, part, folder):
    """A copy of the model that the clean part has left: what a part learns stays its own."""
    state = os.path.join(folder, "state")
    if part.needs:
        need(is_done(root, part.needs), f"{part.needs} has to run first")
        shutil.copytree(os.path.join(root, part.needs, "state"), state)
    else:
        os.makedirs(state)
    return state


def endless_plan(job_name, rng, only):
    """All faults of a job in random order, again and again."""
    combinations = [(kind.name, dose) for kind, dose in chosen(job_name) if not only or kind.name in only]
    while combinations:
        yield from rng.sample(combinations, len(combinations))


def finish(folder, part, job, began_s, seed):
    record = {"part": part.name, "kind": part.kind, "job": part.job, "seed": seed, "begin_s": began_s, "end_s": time.time(),
              "pids": job.pids(), "ranks": job.ranks, "steps": len(job.steps())}
    with open(os.path.join(folder, "part.json"), "w", encoding="utf-8") as file:
        json.dump(record, file)


def run_watched(options, part, folder):
    state, seconds = take_state(options.root, part, folder), part.seconds * options.scale
    rng, began_s, end_s = random.Random(f"{part.name} {options.seed}"), time.time(), time.monotonic() + seconds
    with Guard() as guard:
        job = start_job(guard, part.job, options.root, options)
        agent = Agent(guard, options, folder, state, seconds + 120, environment_of(job))
        if part.kind == "faults":
            pause(WARM_S * options.scale, job, agent)
            run_faults(job, agent, endless_plan(part.job, rng, options.only), rng, OFF_S, end_s, folder)
        else:
            pause(end_s - time.monotonic(), job, agent)
        agent.stop()
        finish(folder, part, job, began_s, options.seed)


def run_effect(options, part, folder):
    rng, began_s = random.Random(options.seed), time.time()
    plan = [(kind.name, dose) for kind, dose in chosen(part.job) if not options.only or kind.name in options.only]
    with Guard() as guard:
        job = start_job(guard, part.job, options.root, options)
        pause(EFFECT_OFF_S, job)
        run_faults(job, None, plan, rng, EFFECT_OFF_S, None, folder, EFFECT_ON_S)
        finish(folder, part, job, began_s, options.seed)


def run_part(options, part):
    (run_effect if part.kind == "effect" else run_watched)(options, part, fresh(os.path.join(options.root, part.name)))
    return {}


def plan_of(options, parts):
    for part in parts:
        minutes = f": {part.seconds * options.scale / MINUTE:.0f} minutes" if part.seconds else ""
        yield kit.Part([part.name], part.name + minutes, lambda part=part: run_part(options, part))


def list_parts(options, parts):
    for part in parts.values():
        state = "done" if is_done(options.root, part.name) else "-"
        print(f"{part.name:16} {state:5} {part.seconds // MINUTE or '<10':>3} min {'after ' + part.needs if part.needs else ''}")


def print_tables(options):
    from table import print_all  # numpy and scikit-learn, for the baselines only
    print_all(options.root, known_parts(), "replayed.jsonl" if options.replayed else "arrivals.jsonl")
    from replay import clean_hours
    try:
        for job, soaks, end, count in clean_hours(options, [part for part in known_parts().values() if is_done(options.root, part.name)]):
            alarms, windows = end["false_alarms_per_day"], f"{end['flagged']} of {end['windows']} windows flagged"
            print(f"\n{job}, {len(soaks)} clean parts ({end['moments'] / 3600:.1f} h) as the present program judges them in one go: {count} "
                  f"incidents; {windows}, by which {alarms['expected']:.2g} false alarms a day are to be expected (95 %: "
                  f"{alarms['low']:.2g} to {alarms['high']:.2g})")
    except (Impossible, Wrong, ImportError, OSError) as reason:
        print(f"\nclean parts are not judged in one go: {reason}")


def parse():
    parser = kit.parser(__doc__)
    parser.add_argument("parts", nargs="+", metavar="PART|all|list|table|replay")
    parser.add_argument("--root", default=os.path.join(ROOT, "build/watch-eval"), metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], metavar="KIND", help="only this kind of fault (repeatable)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the length of parts, for trying them out")
    parser.add_argument("--replayed", action="store_true", help="of table: what `replay` wrote, not what was said live")
    parser.add_argument("--learn-s", type=int, default=600, help="how long the agent learns [600]")
    parser.add_argument("--agent", dest="agent_options", action="append", default=[], metavar="OPTION", help="one more for kansoku watch")
    options = parser.parse_args()
    options.job_options = {}
    return options


def main(report):
    options, parts = parse(), known_parts()
    os.makedirs(options.root, exist_ok=True)
    if options.parts == ["list"]:
        list_parts(options, parts)
        return 0
    if options.parts == ["table"]:
        print_tables(options)
        return 0
    if options.parts == ["replay"]:
        from replay import replay_parts
        replay_parts(options, parts, is_done)
        return 0
    everything = options.parts == ["all"]
    names = [name for name, part in parts.items() if part.kind != "effect"] if everything else options.parts
    unknown = [name for name in names if name not in parts]
    if unknown:
        print(f"no part is called {' '.join(unknown)}; there are {' '.join(parts)}", file=sys.stderr)
        return 2
    plan = plan_of(options, [parts[name] for name in names])
    # A part that has not ended is run again from its begin.
    return None if kit.run_until_stopped(lambda: Folders(options.root).run(plan, report, again=not everything)) else 130


if __name__ == "__main__":
    kit.run(main)
