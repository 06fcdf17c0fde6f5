#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores `kansoku diff` on recorded jobs: planted changes and equal runs. Prints the tables of docs/measurements/diff.md.

    evaluate.py gpu [--null 10]         profiles with a GPU's noise (tests/data/diff/make.py): by how much `rope` is slower, and null pairs
    evaluate.py model [--null 10]       the software GPU's model clock: 2 % slower, a batch, a build; null pairs
    evaluate.py wall [--null 10]        its wall clock: null pairs; the same changes
    evaluate.py ddp [--null 10]         two ranks of PyTorch on processors, recorded by `kansoku record` (root, eBPF, python3-torch)
    evaluate.py all
--kansoku names the program, --job a built examples/diff/job.cu (else it is built by share/softgpu/softgpu-clang; clang 19), --keep a folder
for the recordings. Null pairs are restarts; every third one has other numbers in kernel names. The status is 1 if a null pair shows
anything or a change that must be found is not.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import ROOT  # noqa: E402


class Score(kit.Table):
    def __init__(self, title):
        super().__init__(title, "pair", "wanted", "right", "seen")

    def pair(self, pair, wanted, right, seen, must=True):
        self.row(pair, wanted, "yes" if right else ("no" if must else "no (may be)"), seen, right=right or not must)


def compare(options, before, after):
    sides = [word for file in before for word in ("--base", file)] + [word for file in after for word in ("--new", file)]
    return kit.answer(options.kansoku, "diff", "--json", *sides)


def significant(diff):
    return [row for row in diff["rows"] if row["significant"] and not row["by_batch"]]


def seen(diff):
    parts = [] if not diff["batch"] else [f"{diff['batch']['unit']} x{diff['batch']['factor']:.3g}"]
    parts += [f"{common['lane']} x{common['factor']['ratio']:.2f}" for common in diff["common"]]
    for row in significant(diff)[:3]:
        ratio = row["call_ms"]["ratio"]
        parts.append(f"{row['name'][:40]} {row['what']}" + (f" x{ratio:.3f}" if ratio else ""))
    if len(significant(diff)) > 3:
        parts.append(f"{len(significant(diff)) - 3} more")
    return "; ".join(parts) or "nothing"


def null_row(score, name, diff):
    score.pair(name, "nothing", diff["verdict"] in ("nothing_significant", "machine"), seen(diff))


def names_of(diff):
    return {row["name"]: row["what"] for row in significant(diff)}


class SoftGpu:
    """Runs of job.cu on the software device, under one of its clocks."""

    def __init__(self, options, folder, clock):
        self.options, self.folder, self.clock = options, folder, clock
        self.job = options.job
        if not self.job:
            kit.need_clang()
            self.job = kit.compile_for_device(options.kansoku, os.path.join(folder, "job"), os.path.join(ROOT, "examples/diff/job.cu"))

    def run(self, name, *arguments):
        path = os.path.join(self.folder, f"{self.clock}-{name}.json")
        subprocess.run([self.options.kansoku, "run", "--softgpu", "--clock", self.clock, "--", self.job, "--out", path, *arguments], check=True)
        return path


def planted_rows(options, score, gpu, slow, must):
    before = gpu.run("before")
    diff = compare(options, [before], [gpu.run("slow", "--slow", str(slow))])
    score.pair(f"`rope` {slow / 10:g} % more work", "rope slower, alone", names_of(diff) == {"rope": "slower"}, seen(diff), must)
    diff = compare(options, [before], [gpu.run("batch", "--batch", "32")])
    score.pair("twice the batch", "grids x2, no kernel by itself",
              bool(diff["batch"]) and abs(diff["batch"]["factor"] - 2) < 0.02 and
              not [row for row in significant(diff) if row["kind"] == "kernel"], seen(diff))
    diff = compare(options, [before], [gpu.run("build", "--build", "new")])
    found = names_of(diff)
    renamed = [row["after_name"] for row in diff["rows"] if row["match"] in ("template", "place")]
    score.pair("another build", "dropout gone, matmul<32> for matmul<16>, softmax_fused",
              "removed" in found.values() and "matmul<32>" in renamed and ("softmax_fused" in found or "softmax_fused" in renamed), seen(diff))


def evaluate_model(options, folder):
    score = Score("The model clock: device times are exact")
    gpu = SoftGpu(options, folder, "model")
    planted_rows(options, score, gpu, 22, True)
    for i in range(options.null):
        other = ["--renumber"] if i % 3 == 2 else []
        null_row(score, f"restart {i + 1}{', renumbered' if other else ''}",
                 compare(options, [gpu.run("null-a")], [gpu.run("null-b", *other)]))
    return score


def evaluate_wall(options, folder):
    score = Score("The wall clock of the software device")
    gpu = SoftGpu(options, folder, "wall")
    planted_rows(options, score, gpu, 100, False)
    files = [gpu.run(f"null-{i}", *(["--renumber"] if i % 3 == 2 else [])) for i in range(options.null + 1)]
    for i in range(options.null):
        null_row(score, f"restart {i + 1}", compare(options, [files[i]], [files[i + 1]]))
    before, after = [], []
    for i in range(options.runs):
        before.append(gpu.run(f"many-before-{i}"))
        after.append(gpu.run(f"many-after-{i}", "--slow", "100"))
    diff = compare(options, before, after)
    rope = next(row for row in diff["rows"] if row["name"] == "rope")["call_ms"]
    score.pair(f"`rope` 10 % more work, {options.runs} runs a side in turn", "rope slower, alone", names_of(diff) == {"rope": "slower"},
              f"{seen(diff)}; rope x{rope['ratio']:.3f} ({rope['low']:.3f} .. {rope['high']:.3f})", False)
    half = options.runs // 2
    null_row(score, f"{half} equal runs a side", compare(options, before[:half], before[half:2 * half]))
    return score


def record_ddp(options, folder, name, **environment):
    path = os.path.join(folder, f"ddp-{name}.pftrace")
    done = kit.record(options.kansoku, path, "-q", "--force", "--probes", "default,torch-ops", of=[os.path.join(ROOT, "examples/ddp/launch.sh")],
                      env=dict(os.environ, RANKS="2", STEPS="160", **environment))
    kit.expect(done.returncode == 0, f"status {done.returncode}: {done.stderr[-2000:]}")
    return path


def evaluate_ddp(options, folder):
    score = Score("Two ranks of PyTorch on processors")
    before = record_ddp(options, folder, "before")
    diff = compare(options, [before], [record_ddp(options, folder, "batch", BATCH="16")])
    score.pair("twice the batch", "every call longer", any(common["lane"] == "main thread" for common in diff["common"]), seen(diff), False)
    diff = compare(options, [before], [record_ddp(options, folder, "layers", LAYERS="3")])
    score.pair("3 layers for 2", "aten::mm more calls", "more calls" in names_of(diff).get("aten::mm", ""), seen(diff))
    files = [before] + [record_ddp(options, folder, f"null-{i}") for i in range(options.null)]
    for i in range(options.null):
        null_row(score, f"restart {i + 1}", compare(options, [files[i]], [files[i + 1]]))
    return score


def evaluate_gpu(options, folder):
    """`rope` has 9 % of the step: 10 % more must be found in every pair."""
    sys.path.insert(0, os.path.join(ROOT, "tests/data/diff"))
    import make  # noqa: PLC0415
    table = kit.Table("Profiles with a GPU's noise", "`rope` slower by", "pairs", "found", "something else")
    before, after = os.path.join(folder, "gpu-a.json"), os.path.join(folder, "gpu-b.json")
    for percent in (0, 3, 5, 7, 10, 15):
        found = others = 0
        for i in range(2 * options.null):
            make.write(before, 1000 + 2 * i)
            make.write(after, 5001 + 2 * i, slow=1 + percent / 100, numbers=i % 3 == 2)
            names = names_of(compare(options, [before], [after]))
            found += names.get("rope") == "slower"
            others += any(name != "rope" for name in names)
        table.wrong += others + (found if percent == 0 else 0) + (2 * options.null - found if percent >= 10 else 0)
        table.row(f"{percent} %", 2 * options.null, found, others)
    return table


PARTS = {"gpu": evaluate_gpu, "model": evaluate_model, "wall": evaluate_wall, "ddp": evaluate_ddp}


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--job")
    parser.add_argument("--null", type=int, default=10)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--keep")
    parser.add_argument("--again", action="store_true", help="parts that are done at this commit, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kansoku-diff-") as own:
        folder = options.keep or own
        os.makedirs(folder, exist_ok=True)
        plan = [kit.Part([name, options.null, options.runs], name, lambda part=part: part(options, folder)) for name, part in PARTS.items()
                if options.part in (name, "all")]
        kit.Parts(os.path.join(ROOT, "build/diff")).run_tables(plan, report, options.again)



if __name__ == "__main__":
    kit.run(main)
