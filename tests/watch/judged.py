#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Detection on whole parts of the evaluation that were recorded with an earlier program (tests/data/watch/judged, made by thin.py whole):
judged.py KANSOKU [--save]

The present program learns each job's clean part and judges the same windows as that program did. It must not be worse in faults found,
precision, wrong ranks and delay; judged.json has what the earlier one said. `--save` writes the figures of KANSOKU there instead."""
import glob
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
import score  # noqa: E402
from faults import kind_is_right  # noqa: E402
from replay import replay  # noqa: E402

DATA = os.path.join(kit.ROOT, "tests/data/watch/judged")
LEARN = "600s"
SHOWN = ("faults", "found", "f1", "precision", "false", "wrong_rank", "no_rank", "kind_right", "delay_median_s", "delay_p95_s", "delay_max_s")
DELAY_SLACK_S = 0.5  # half a window


def judge_job(kansoku, job):
    """Figures over all parts of a job, and what the program tells in the rest of its clean part."""
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        healthy, _ = replay(kansoku, os.path.join(DATA, f"clean-{job}.csv.gz"), "--job", "job", "--learn", LEARN, "--save", model)
        incident_count = false_count = len(score.incidents_of(healthy))
        for path in sorted(glob.glob(os.path.join(DATA, f"faults-{job}-*.csv.gz"))):
            faults = kit.read_lines(path.removesuffix(".csv.gz") + ".truth.jsonl")
            lines, _ = replay(kansoku, path, "--job", "job", "--model", model)
            incidents = score.incidents_of(lines)
            answers += score.judge(faults, incidents, kind_is_right)
            incident_count += len(incidents)
            false_count += len(score.false_alarms(faults, incidents))
    for answer in answers:
        if not answer["found"] or answer["rank"] == "wrong":
            print(f"  {answer['fault']['kind']} {answer['fault']['dose']}: {'wrong rank' if answer['found'] else 'not found'}")
    figures = score.summarise(answers, incident_count, false_count, 0)
    return {name: round(figures[name], 4) if isinstance(figures[name], float) else figures[name] for name in SHOWN}


def worse(now, before):
    """What is worse than it was."""
    more_is_worse = {"false": 0, "wrong_rank": 0, "delay_median_s": DELAY_SLACK_S, "delay_p95_s": DELAY_SLACK_S}
    out = [name for name in ("found", "f1", "precision") if now[name] < before[name]]
    return out + [name for name, slack in more_is_worse.items() if now[name] > before[name] + slack]


def main(report):
    kept = os.path.join(DATA, "judged.json")
    jobs = sorted(os.path.basename(path).split(".")[0].removeprefix("clean-") for path in glob.glob(os.path.join(DATA, "clean-*.csv.gz")))
    figures = {}
    for job in jobs:
        figures[job] = judge_job(sys.argv[1], job)
        print(job, figures[job])
    if "--save" in sys.argv:
        with open(kept, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
        return 0
    with open(kept, encoding="utf-8") as file:
        before = json.load(file)
    problems = [f"{job}: {name}: {before[job][name]} -> {figures[job][name]}" for job in jobs for name in worse(figures[job], before[job])]
    report.judge("judged", problems or ([] if jobs else ["no job is in the data"]))


if __name__ == "__main__":
    kit.run(main)
