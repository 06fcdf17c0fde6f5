#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Is anybody blamed in a job whose ranks do equal work? And is somebody, where one does more? Runs real jobs, records them, holds the
diagnosis against the kernel's own account of each rank.

  run.py                          every part; finished runs of this commit are skipped
  run.py healthy --runs 20        so many runs of a part (repeatable words)
  run.py --minutes 30             begins no run after so long; the same command goes on
  run.py --table                  only the scores so far, of every commit in the results file
Parts: faults (glibc's heap given back and fetched again in each step), healthy (equal work), moving (work that moves from rank to rank),
planted (one rank with half as much again), seldom (one rank's rare long steps), reasons (of the kernel, on one rank: jobs/reasons.py, and
interrupts). Needs root, eBPF and Debian's python3-torch.
"""
import collections
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from harness import host  # noqa: E402
from score import REASONS, blames, faults_are_right, is_right, others, promised_ms  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
SETTING = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
FAULTING = {"BATCH": "256", "WIDTH": "256"}
RUN_S = 150
LIMIT_BYTES = 320 << 20

# environment: of the job; ranks; load: none, busy (a loop beside it), pinned (two ranks a processor), limit (of rank 1's memory),
# interrupts (on the processor that rank 1 has alone)
Run = collections.namedtuple("Run", "part job environment ranks load", defaults=(4, "none"))
SCRIPTS = {"linear": "equal_work/jobs/linear.py", "ratings": "equal_work/jobs/ratings.py", "mlp": "faults/jobs/mlp.py",
           "transformer": "faults/jobs/transformer.py"}


def linear(mode, **more):
    return {"MODE": mode, **more}


def faults():
    for _ in itertools.count():
        yield Run("faults", "linear", linear("accumulate", **FAULTING))
        yield Run("setting", "linear", linear("accumulate", **FAULTING, **SETTING))


def healthy():
    jobs = [("linear", linear("accumulate")), ("linear", linear("two_models", STEPS="100")), ("mlp", {"SECONDS": "12"}),
            ("transformer", {"SECONDS": "12"}), ("ratings", {"STEPS": "150"})]
    for load, ranks, (job, environment) in itertools.cycle(itertools.product(("none", "busy", "pinned"), (4, 2), jobs)):
        yield Run("healthy", job, environment, ranks, load)


def moving():
    modes = ("rotate", "lengths", "turn")
    for mode, more in itertools.cycle(itertools.product(modes, ({}, SETTING))):
        yield Run("moving", "linear", linear(mode, **more))


def planted():
    for more in itertools.cycle((SETTING, {})):
        yield Run("planted", "linear", linear("planted", **FAULTING, **more))


def seldom():
    for every in itertools.cycle(("30", "100", "200")):
        yield Run("seldom", "linear", linear("seldom", EVERY=every, STEPS="3000", BATCH="32", WIDTH="192", **SETTING))


def reasons():
    for reason in itertools.cycle(REASONS):
        load = reason if reason in ("limit", "interrupts") else "none"
        yield Run("reasons", "linear", linear("accumulate", **SETTING, REASON=reason), 2 if reason == "interrupts" else 4, load)


PARTS = {"faults": (faults, 40), "healthy": (healthy, 100), "moving": (moving, 40), "planted": (planted, 40), "seldom": (seldom, 15),
         "reasons": (reasons, 40)}


def said(finding):
    return {key: finding[key] for key in ("kind", "ranks", "function", "cost_ms_per_step", "confidence", "evidence")}


# Datagrams to itself, half of the time.
SENDER = """
import socket, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    while True:
        end = time.monotonic() + 0.005
        while time.monotonic() < end:
            out.sendto(bytes(1400), ("127.0.0.1", 9))
        time.sleep(0.005)  # allowed: the pace of a sender
"""


def interrupt(stack):
    """The second processor receives what the first one sends, in a network namespace of their own."""
    name = host.Namespaces(1, stack, "ke").names[0]
    host.run("ip", "netns", "exec", name, "/bin/sh", "-c", "echo 2 > /sys/class/net/lo/queues/rx-0/rps_cpus")
    stack.enter_context(kit.Job(["ip", "netns", "exec", name, "taskset", "-c", "0", sys.executable, "-c", SENDER]))


def limit(stack):
    """Control groups of memory for the ranks: rank 1's is full once it has loaded its libraries."""
    for rank in range(4):
        group = host.ControlGroup("memory", stack, f"kansoku-equal-{os.getpid()}-{rank}")
        if rank == 1:
            group.write("memory.limit_in_bytes", LIMIT_BYTES)
    return group.path[:-1] + "{rank}"


def bring_about(run, environment, stack):
    """Whatever is beside the job, or around it."""
    if run.load == "pinned":
        environment["CPUS"] = ",".join(str(rank // 2 % os.cpu_count()) for rank in range(run.ranks))
    if run.load == "busy":
        stack.enter_context(kit.Job(["/bin/sh", "-c", "while :; do :; done"]))
    if run.load == "interrupts":
        environment["CPUS"] = "0,1"
        interrupt(stack)
    if run.load == "limit":
        environment["CGROUPS"] = limit(stack)


def run_one(options, run, name):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kansoku-equal-"))
        environment = {**os.environ, **run.environment, "RANKS": str(run.ranks), "ACCOUNT": folder}
        bring_about(run, environment, stack)
        trace = os.path.join(options.traces or folder, name + ".pftrace")
        job = [sys.executable, host.LAUNCH, os.path.join(HERE, "jobs/account.py"), os.path.join(TESTS, SCRIPTS[run.job])]
        begin = time.monotonic()
        done = kit.record(options.kansoku, trace, "-q", of=job, env=environment, timeout=RUN_S, start_new_session=True)
        kit.expect(done.returncode == 0, f"record: status {done.returncode}: {done.stderr[-1000:]}")
        diagnosis = kit.answer(options.kansoku, "diagnose", "--json", trace)
        accounts = []
        for rank in range(run.ranks):
            with open(os.path.join(folder, f"{rank}.json"), encoding="ascii") as file:
                accounts.append(json.load(file))
        return {"steps": diagnosis["steps"].get("count", 0), "step_ms": diagnosis["steps"].get("mean_ms", 0), "accounts": accounts,
                "findings": [said(finding) for finding in diagnosis["findings"]], "notes": diagnosis["notes"],
                "run_s": round(time.monotonic() - begin)}


def shown(result):
    findings = "; ".join(f"{f['kind']} {f['ranks']} {f['function']} {kit.cost(f)} {kit.basis(f)}" for f in result["findings"])
    faults_a_step = [round(account["faults"] / max(result["steps"], 1)) for account in result["accounts"]]
    return (f"{'right' if is_right(result) else 'WRONG'}: {findings or 'nothing found'} | {result['steps']} steps of {result['step_ms']:.1f} ms, "
            f"faults {faults_a_step}, {result['run_s']} s")


def plan_of(options):
    """One run of each part after the other, so that a part of the time is a part of the whole."""
    wanted = options.parts or list(PARTS)
    streams = {part: itertools.islice(PARTS[part][0](), options.runs or PARTS[part][1]) for part in wanted}
    for number in itertools.count(1):
        runs = [(part, run) for part in wanted if (run := next(streams[part], None))]
        if not runs:
            return
        for part, run in runs:
            key = [part, number, run.part, run.job, sorted(run.environment.items()), run.ranks, run.load]
            name = f"{part}-{number}"
            words = " ".join([run.job, *(value for key, value in run.environment.items() if key in ("MODE", "EVERY", "REASON")),
                              "with the setting" if SETTING.items() <= run.environment.items() else "", run.load, f"{run.ranks} ranks"])
            yield kit.Part(json.loads(json.dumps(key)), f"{name} {' '.join(words.split())}",
                           lambda run=run, name=name: {**run._asdict(), **run_one(options, run, name)})


def group_of(result):
    mode = result["environment"].get("MODE") or result["job"]
    if result["part"] == "reasons":
        mode = result["environment"]["REASON"]
    return (result["part"], mode + (" 1 in " + result["environment"]["EVERY"] if mode == "seldom" else ""),
            "both thresholds" if SETTING.items() <= result["environment"].items() else "as it comes")


def print_table(results):
    ran = [result for result in results if "not_run" not in result]
    print("\n| part | job | glibc's heap | runs | right | interval | blamed somebody | other finding untrue | page faults wrong |\n"
          "|---|---|---|---|---|---|---|---|---|")
    for key, group in itertools.groupby(sorted(ran, key=group_of), key=group_of):
        group = list(group)
        right = sum(map(is_right, group))
        # Of the other parts somebody is to be named.
        counts = [sum(map(of, group)) for of in (lambda r: bool(blames(r)), lambda r: bool(others(r)), lambda r: faults_are_right(r) is False)]
        cells = counts if key[0] not in ("planted", "seldom", "reasons") else ["", "", ""]
        print(f"| {' | '.join(key)} | {len(group)} | {right} | {kit.interval(right, len(group))} | {' | '.join(map(str, cells))} |")
    print_promises(ran)


def print_promises(results):
    """The step that is promised against the mean step of the runs with the setting."""
    with_setting = [r["step_ms"] for r in results if r["part"] == "setting"]
    promises = [promised_ms(r) for r in results if r["part"] == "faults"]
    known = [(ms, at_most) for ms, at_most in promises if ms is not None]
    if with_setting and known:
        measured = sum(with_setting) / len(with_setting)
        good = sum(abs(ms - measured) <= 0.15 * measured or (at_most and ms >= measured) for ms, at_most in known)
        print(f"\npromised within 15 % of {measured:.1f} ms: {good} of {len(promises)} ({', '.join(f'{ms:.1f}' for ms, _ in known)})")


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--runs", type=int, help="of each part")
    parser.add_argument("--minutes", type=float, help="begin no run after so long")
    parser.add_argument("--results", metavar="FILE", help="[build/equal_work/COMMIT.jsonl]")
    parser.add_argument("--traces", metavar="FOLDER", help="keep the recordings")
    parser.add_argument("--table", action="store_true", help="only print the scores in the results file")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]}; there are {' '.join(PARTS)}")
    if options.traces:
        os.makedirs(options.traces, exist_ok=True)
    kit.need_root()
    kit.need(subprocess.run(["/usr/bin/python3", "-c", "import torch"], check=False, capture_output=True).returncode == 0, "no python3-torch")
    parts = kit.Parts(os.path.join(kit.ROOT, "build/equal_work"), options.results)
    if not options.table and not kit.run_until_stopped(lambda: parts.run(plan_of(options), report, shown, options.minutes)):
        return 130
    print_table(parts.all if options.table else parts.results)
    return 0 if options.table else None


if __name__ == "__main__":
    kit.run(main)
