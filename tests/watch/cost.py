#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What always-on watching costs; results in build/watch-eval/cost/COMMIT.jsonl.

  cost.py steps     step time of one running 8-rank job, the agent's probes on and off in alternating windows; processor time and
                    memory of the agent (about 20 minutes for 250 pairs)
  cost.py rate      processor time of the agent for a job with few events and one with ten times as many (about 10 minutes)
  cost.py report    the figures so far
The agent is switched by `kansoku watch --control pause|resume --state DIR`, which returns when the probes are detached or attached.
"""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import ROOT, expect  # noqa: E402
from guard import Guard  # noqa: E402
from jobs import DdpJob, cpu_seconds  # noqa: E402
from session import Agent, fresh, pause  # noqa: E402

SETTLE_S = 0.2
LEARN_S = 60
# Eight ranks that mostly wait, as if for a device, so that they fit on two cores.
LIGHT = {"D_MODEL": "32", "LAYERS": "2", "BATCH": "1", "SAMPLE_KB": "16", "PACE_MS": "20", "CHECKPOINT_S": "0", "LEAK_MB_S": "0"}
# Two waits of 2.5 times the pace are a step, beside the computing: about ten to one on an idle machine.
FEW, MANY = {**LIGHT, "PACE_MS": "100"}, {**LIGHT, "PACE_MS": "8"}


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def alternate(options, state, job, agent):
    """Windows on, off, off, on, ...: drift of the machine falls on both alike."""
    windows, pid = [], agent.process.pid
    cpu, resident = {True: [0.0, 0.0], False: [0.0, 0.0]}, 0
    for index in range(2 * options.pairs):
        is_on = index % 4 in (0, 3)
        kit.switch_agent(options.kansoku, state, "resume" if is_on else "pause")
        time.sleep(SETTLE_S)
        begin_s, used = time.time(), cpu_seconds(pid)
        pause(options.window_s, job, agent)
        end_s = time.time()
        cpu[is_on][0] += cpu_seconds(pid) - used
        cpu[is_on][1] += end_s - begin_s
        resident = max(resident, resident_bytes(pid))
        windows.append((is_on, begin_s, end_s))
    return windows, {is_on: used / over for is_on, (used, over) in cpu.items()}, resident


def start(options, guard, folder, world, environment, seconds):
    job = DdpJob(guard, os.path.join(options.root, "job-cost"), {"world": world, "environment": environment})
    state = fresh(os.path.join(folder, "state"))
    agent = Agent(guard, options, folder, state, seconds + options.learn_s + 300)
    pause(options.learn_s + 30, job, agent)
    return job, agent, state


def measure_steps(options, folder):
    with Guard() as guard:
        job, agent, state = start(options, guard, folder, 8, LIGHT, 2 * options.pairs * (options.window_s + 1))
        windows, cpu, resident = alternate(options, state, job, agent)
        changes = kit.pair_changes(windows, job.steps())
        agent.stop()
    expect(changes, "no pair of windows with steps")
    return {"what": "steps", "ranks": 8, "changes": changes, "cpu_on": cpu[True], "cpu_off": cpu[False], "resident_bytes": resident}


def measure_rate(options, folder):
    """One job after the other, in the order few, many, many, few, ..., each with an agent of its own that has learnt."""
    shares = {"few": [], "many": []}
    rates = {"few": [], "many": []}
    for index in range(2 * options.rounds):
        name = "few" if index % 4 in (0, 3) else "many"
        with Guard() as guard:
            job, agent, _ = start(options, guard, folder, 2, {"few": FEW, "many": MANY}[name], options.rate_s)
            steps, used, begin = len(job.steps()), cpu_seconds(agent.process.pid), time.monotonic()
            pause(options.rate_s, job, agent)
            over = time.monotonic() - begin
            shares[name].append((cpu_seconds(agent.process.pid) - used) / over)
            rates[name].append((len(job.steps()) - steps) / over)
            agent.stop()
    return {"what": "rate", "cpu": shares, "steps_per_s": rates}


def report_steps(result):
    middle, low, high = kit.median_interval(result["changes"])
    print(f"step time, {len(result['changes'])} pairs of windows of one job with {result['ranks']} ranks: {middle:+.2%} "
          f"(95 % of resampled medians: {low:+.2%} to {high:+.2%})")
    print(f"agent: {result['cpu_on']:.2%} of a core while on, {result['cpu_off']:.2%} while paused; "
          f"{result['resident_bytes'] / 1e6:.1f} MB resident at most")


def report_rate(result):
    for name in ("few", "many"):
        middle, low, high = kit.median_interval(result["cpu"][name])
        print(f"{name}: {statistics.median(result['steps_per_s'][name]):.1f} steps/s of 2 ranks: agent {middle:.2%} of a core "
              f"({low:.2%} to {high:.2%}, {len(result['cpu'][name])} runs)")
    few, many = (statistics.median(result["steps_per_s"][name]) for name in ("few", "many"))
    print(f"{many / few:.1f} times the events" + (": less than ten times, the machine is too busy for this" if many < 9 * few else ""))


def show_results(parts):
    for what, show in (("steps", report_steps), ("rate", report_rate)):
        result = parts.result([what])
        show(result) if result else print(f"{what}: not run yet")


def parse():
    parser = kit.parser(__doc__)
    parser.add_argument("what", choices=("steps", "rate", "report"))
    parser.add_argument("--root", default=os.path.join(ROOT, "build/watch-eval"), metavar="FOLDER")
    parser.add_argument("--pairs", type=int, default=250)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate-s", type=float, default=60.0)
    parser.add_argument("--learn-s", type=int, default=LEARN_S)
    options = parser.parse_args()
    options.agent_options = []
    return options


def main(report):
    options = parse()
    folder = os.path.join(options.root, "cost")
    parts = kit.Parts(folder)
    if options.what != "report":
        measure = {"steps": measure_steps, "rate": measure_rate}[options.what]
        report.part(options.what, lambda: parts.add({"key": [options.what], **measure(options, fresh(os.path.join(folder, options.what)))}))
    show_results(parts)
    return 0 if options.what == "report" else None


if __name__ == "__main__":
    kit.run(main)
