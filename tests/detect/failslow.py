#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Labelled fail-slow runs through `kansoku detect`: failslow.py KANSOKU [--seed N]

The runs (16 accelerators, 500 steps; C0 healthy, C1 with a fault in steps 100 to 299) lie in $KANSOKU_DATA/failslow, else in
../shared/data/failslow; without them the test is skipped (77). The ids of the ranks are permuted by the seed, so that the answer must
follow the data. Each run is scored in four ways: with and without a model of its healthy run, with and without the column residual_ms
that the victim's lost time sits in. Asked for:
  a run with a single victim names that rank and no other;
  a run without one names no rank;
  the healthy run of every gpu-bound case gives no incident: without a model, its later steps with a model of the earlier ones, and
    with the model of another healthy run that is configured alike, where there is one;
  a fault of all ranks is found against another run's healthy steps.
"""
import csv
import gzip
import io
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

DATA = pathlib.Path(os.environ.get("KANSOKU_DATA", os.path.join(kit.ROOT, "../shared/data"))) / "failslow"
TIMERS = ["data_ms", "compute_ms", "comm_ms", "wait_ms"]
KEPT = ["rank", "step", *TIMERS, "step_ms"]


def write_tables(path, folder, permutation):
    """The run's C0 and C1 as plain tables, without and with the residual; their names by (config, residual)."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    out = {}
    for config, prefix in (("C0", "C0_"), ("C1", "C1_")):
        for residual in (False, True):
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(KEPT + (["residual_ms"] if residual else []))
            for row in rows:
                if not row["config"].startswith(prefix):
                    continue
                values = [str(permutation[int(row["rank"])]), *(row[name] for name in KEPT[1:])]
                if residual:
                    values.append(f"{float(row['step_ms']) - sum(float(row[name]) for name in TIMERS):.3f}")
                writer.writerow(values)
            name = folder / f"{path.name[:-7]}.{config}.{'residual' if residual else 'plain'}.csv"
            name.write_text(text.getvalue(), encoding="utf-8")
            out[config, residual] = name
    return out


class Detect:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.models = {}

    def run(self, *arguments):
        return subprocess.run([self.program, "detect", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)

    def model(self, table):
        if table not in self.models:
            path = self.folder / (table.name + ".model")
            done = self.run("fit", table, "-o", path)
            if done.returncode != 0:
                raise kit.Wrong(f"fit {table.name}: {done.stderr}")
            self.models[table] = path
        return self.models[table]

    def score(self, table, model=None):
        done = self.run("score", table, "--json", *(["--model", self.model(model)] if model else []))
        if done.returncode not in (0, 10):
            raise kit.Wrong(f"score {table.name}: {done.stderr}")
        verdict = json.loads(done.stdout)
        if (done.returncode == 10) != bool(verdict["incidents"]):
            raise kit.Wrong(f"score {table.name}: exit status {done.returncode} with {len(verdict['incidents'])} incidents")
        return verdict


def medians(table):
    """Median of each timer in the healthy steps, for telling which runs are configured alike."""
    with open(table, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [statistics.median(float(row[name]) for row in rows) for name in TIMERS + ["step_ms"]]


def twin_of(runs, run, middles):
    """The gpu-bound run whose healthy steps are most like this one's, and whether they are alike: within 5 % or 0.5 ms each."""
    def distance(other):
        pairs = zip(middles[run["file"]], middles[other["file"]])
        return max(abs(a - b) / max(0.5, 0.05 * a) for a, b in pairs)

    twin = min((other for other in runs if other["mode"] == "gpu_bound" and other is not run), key=distance)
    return twin, distance(twin) <= 1


def split(table, folder):
    """The steps before 300 as a table, and the later ones."""
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    parts = []
    for name, belongs in (("first", lambda step: step < 300), ("later", lambda step: step >= 300)):
        part = folder / f"{table.name}.{name}.csv"
        part.write_text(lines[0] + "".join(line for line in lines[1:] if belongs(int(line.split(",")[1]))), encoding="utf-8")
        parts.append(part)
    return parts


def short(verdict):
    tests = sorted({test for incident in verdict["incidents"] for test in incident["tests"]})
    return (",".join(map(str, verdict["named_ranks"])) or "-") + " " + ("+".join(tests) or "nothing")


def judge(run, verdict, permutation):
    """Whether a faulty run's verdict is right."""
    if run["victim"] is None:
        return not verdict["named_ranks"]
    return verdict["named_ranks"] == [permutation[run["victim"]]]


def main(report):
    parser = kit.parser(__doc__, False)
    parser.add_argument("kansoku")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kit.need((DATA / "index.json").is_file(), f"no {DATA}")
    index = json.loads((DATA / "index.json").read_text(encoding="utf-8"))
    runs = index["runs"] if isinstance(index, dict) else index
    permutation = list(range(16))
    random.Random(options.seed).shuffle(permutation)
    failures = []
    with tempfile.TemporaryDirectory(prefix="kansoku-failslow-") as name:
        folder = pathlib.Path(name)
        detect = Detect(options.kansoku, folder)
        tables = {run["file"]: write_tables(DATA / run["file"], folder, permutation) for run in runs}
        middles = {run["file"]: medians(tables[run["file"]]["C0", False]) for run in runs}
        counts = {"healthy": 0}
        print(f"ranks permuted by seed {options.seed}: the victim, rank 7, is called {permutation[7]}")
        print(f"{'run':<18}{'victim':>7}  {'alone':<14}{'alone, residual':<18}{'model':<16}{'model, residual':<18}healthy")
        for run in runs:
            mine = tables[run["file"]]
            cells = []
            for with_model in (False, True):
                for residual in (False, True):
                    verdict = detect.score(mine["C1", residual], mine["C0", residual] if with_model else None)
                    is_right = judge(run, verdict, permutation)
                    if with_model and run["victim"] is None and run["mode"] == "gpu_bound":
                        is_right = is_right and any("job" in incident["tests"] for incident in verdict["incidents"])
                    cells.append(short(verdict) + ("" if is_right else " !"))
                    if not is_right:
                        failures.append(f"{run['file']}: {'model' if with_model else 'alone'}, residual {residual}: {short(verdict)}")
            healthy = "-"
            if run["mode"] == "gpu_bound":
                found = []
                for residual in (False, True):
                    other, is_alike = twin_of(runs, run, middles)
                    twin = tables[other["file"]]
                    first, later = split(mine["C0", residual], folder)
                    ways = [("alone", mine["C0", residual], None), ("later", later, first)]
                    ways += [("twin", mine["C0", residual], twin["C0", residual])] if is_alike else []
                    counts["healthy"] += len(ways)
                    for way, table, model in ways:
                        verdict = detect.score(table, model)
                        if verdict["incidents"]:
                            found.append(f"{way}{'+r' if residual else ''}: {short(verdict)}")
                    if run["victim"] is None:
                        verdict = detect.score(mine["C1", residual], twin["C0", residual])
                        if verdict["named_ranks"] or not verdict["incidents"]:
                            failures.append(f"{run['file']}: against another run: {short(verdict)}")
                healthy = "; ".join(found) or "nothing"
                failures += [f"{run['file']}: healthy: {one}" for one in found]
            victim = "-" if run["victim"] is None else str(permutation[run["victim"]])
            print(f"{run['file'][:-7]:<18}{victim:>7}  {cells[0]:<14}{cells[1]:<18}{cells[2]:<16}{cells[3]:<18}{healthy}")
    print(f"{len(runs)} runs, {counts['healthy']} healthy scores, {len(failures)} failures")
    report.judge("runs", failures or ([] if runs and counts["healthy"] else ["there are none"]))


if __name__ == "__main__":
    kit.run(main)
