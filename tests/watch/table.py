# SPDX-License-Identifier: Apache-2.0
"""The tables of the evaluation, in Markdown: methods side by side, then each fault."""
import json
import os

import score
from kit import read_lines
from faults import KINDS, kind_is_right

PRODUCT = "kansoku"
NOT_RUN = "not run yet"


class Results:
    """One part that is done: what was planted, what the agent said."""

    def __init__(self, root, part, said_in):
        self.said_in = said_in
        self.part, self.folder = part, os.path.join(root, part.name)
        with open(os.path.join(self.folder, "part.json"), encoding="utf-8") as file:
            self.facts = json.load(file)
        self.faults = read_lines(os.path.join(self.folder, "truth.jsonl"))
        self.not_planted = [f for f in self.faults if "not_run" in f]
        self.features = os.path.join(self.folder, "features.csv")
        self.rows, self.job_names = None, set()

    def read_features(self):
        import baselines
        self.rows, self.job_names = baselines.read_rows(self.features, set(self.facts["ranks"]))

    def said(self):
        """The agent's incidents of this job, those of strangers, and how many lines are none."""
        lines = read_lines(os.path.join(self.folder, self.said_in))
        ours, strangers = score.of_job(score.incidents_of(lines), self.job_names, self.facts["pids"])
        return ours, strangers, sum("unreadable" in line for line in lines)

    def quiet_s(self):
        return score.watched_s(self.facts["begin_s"], self.facts["end_s"], self.faults)


class Tally:
    """What one method has to show."""

    def __init__(self):
        self.answers, self.incidents, self.false, self.quiet_s = [], 0, 0, 0.0

    def add(self, results, incidents, judges_kind):
        self.answers += score.judge(results.faults, incidents, kind_is_right if judges_kind else None)
        self.incidents += len(incidents)
        self.false += len(score.false_alarms(results.faults, incidents))
        self.quiet_s += results.quiet_s()

    def summary(self):
        return score.summarise(self.answers, self.incidents, self.false, self.quiet_s)


def calibrated(root, job_name):
    """The baselines of a job, from its clean part; none with the reason as the second value."""
    try:
        import baselines
        import sklearn  # noqa: F401
    except ImportError as error:
        return [], f"{error} (apt-get install python3-numpy python3-sklearn)"
    folder = os.path.join(root, f"clean-{job_name}")
    try:
        with open(os.path.join(folder, "part.json"), encoding="utf-8") as file:
            ranks = set(json.load(file)["ranks"])
        clean, _ = baselines.read_rows(os.path.join(folder, "features.csv"), ranks, baselines.START_S)
        return [baselines.Calibrated(method, clean) for method in baselines.methods()], ""
    except (OSError, ValueError) as error:
        return [], f"clean-{job_name}: {error}"


def tally_parts(root, done, problems):
    """Tallies by method name; the product's strangers are counted in problems."""
    tallies, ready = {PRODUCT: Tally()}, {}
    for results in done:
        job = results.part.job
        if job not in ready:
            ready[job], problem = calibrated(root, job)
            if problem:
                problems.append(f"baselines of {job}: {problem}")
        try:
            results.read_features()
        except (ImportError, OSError, ValueError, KeyError, IndexError) as error:
            problems.append(f"{results.part.name}: features: {error}")
        ours, strangers, unreadable = results.said()
        if unreadable:
            problems.append(f"{results.part.name}: {unreadable} lines of incidents are no JSON")
        if strangers:
            problems.append(f"{results.part.name}: {len(strangers)} incidents of other jobs on this machine, not counted")
        problems += [f"{results.part.name}: {f['kind']} {f['dose']} was not planted: {f['not_run']}" for f in results.not_planted]
        tallies[PRODUCT].add(results, ours, True)
        for method in ready[job] if results.rows is not None else []:
            tallies.setdefault(method.name, Tally()).add(results, method.incidents(results.rows), False)
    return tallies


def cell(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def print_methods(tallies):
    print("| method | faults found | recall | precision | F1 | delay median | p95 | max | wrong rank | no rank | right kind | "
          "false a day |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, tally in tallies.items():
        s = tally.summary()
        seconds = " | ".join(cell(s[key], "{:.1f} s") for key in ("delay_median_s", "delay_p95_s", "delay_max_s"))
        shares = " | ".join(cell(s[key], "{:.0%}") for key in ("wrong_rank", "no_rank", "kind_right"))
        print(f"| {name} | {s['found']} of {s['faults']} | {cell(s['recall'])} | {cell(s['precision'])} | {cell(s['f1'])} | {seconds} | "
              f"{shares} | {s['false']} in {tally.quiet_s / 3600:.1f} h: {cell(s['false_per_day'], '{:.1f}')} |")


def grown(answers):
    ratios = [a["fault"]["step_during_ms"] / a["fault"]["step_before_ms"] for a in answers
              if a["fault"].get("step_during_ms") and a["fault"].get("step_before_ms")]
    return "" if not ratios else f"{sorted(ratios)[len(ratios) // 2]:.2f} x"


def print_faults(tallies, job):
    """A row a kind and dose; one not planted so far says so."""
    names = list(tallies)
    print(f"\n| {job}: fault | dose | step | " + " | ".join(names) + " | median delay | kinds told |")
    print("|---|---|---|" + "---|" * (len(names) + 2))
    for kind, dose in ((k, d) for k in KINDS.values() if job in k.jobs for d in k.doses):
        rows = [[a for a in tallies[name].answers if (a["fault"]["kind"], a["fault"]["dose"], a["fault"]["job"]) == (kind.name, dose, job)]
                for name in names]
        if not rows[0]:
            print(f"| {kind.name} | {dose} {kind.unit} | {NOT_RUN} |" + " |" * (len(names) + 2))
            continue
        delays = sorted(a["delay_s"] for a in rows[0] if a["found"])
        told = ", ".join(sorted({a["told"] for a in rows[0] if a["told"]}))
        found = " | ".join(f"{sum(a['found'] for a in row)} of {len(row)}" for row in rows)
        print(f"| {kind.name} | {dose} {kind.unit} | {grown(rows[0])} | {found} | "
              f"{cell(delays[len(delays) // 2] if delays else None, '{:.1f} s')} | {told} |")


def print_effect(root, part):
    print(f"\n| {part.job}: fault | dose | ranks | step before | during |\n|---|---|---|---|---|")
    for f in read_lines(os.path.join(root, part.name, "truth.jsonl")):
        seen = f.get("not_run") or f"{cell(f['step_before_ms'], '{:.0f} ms')} | {cell(f['step_during_ms'], '{:.0f} ms') or 'no steps'}"
        print(f"| {f['kind']} | {f['dose']} {f['unit']} | {' '.join(map(str, f['ranks'])) or '-'} | {seen} |")


def why_missing(root, part):
    tried = read_lines(os.path.join(root, part.name, "not_run.jsonl"))
    return f"{part.name}: " + (f"not run: {tried[-1]['reason']}" if tried else NOT_RUN)


def print_all(root, parts, said_in="arrivals.jsonl"):
    """`said_in`: the file of each part with what the agent said."""
    has_ended = {name: os.path.exists(os.path.join(root, name, "part.json")) for name in parts}
    for part in parts.values():
        if part.kind == "effect" and has_ended[part.name]:
            print_effect(root, part)
    # A clean part is what everybody learnt from: it is not scored.
    scored = [part for part in parts.values() if part.kind in ("faults", "soak")]
    problems = [why_missing(root, part) for part in parts.values() if part.kind != "effect" and not has_ended[part.name]]
    done = [Results(root, part, said_in) for part in scored if has_ended[part.name]]
    tallies = tally_parts(root, done, problems)
    print()
    print_methods(tallies)
    for job in sorted({part.job for part in scored}):
        print_faults(tallies, job)
    if problems:
        print("\n" + "\n".join(f"* {problem}" for problem in problems))
