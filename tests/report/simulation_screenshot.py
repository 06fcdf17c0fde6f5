#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the simulator's reports of a run, a sweep and a fit, draws them in headless Chromium and measures the pages.

simulation_screenshot.py KANSOKU [FOLDER]: with FOLDER pages and pictures stay there. Exit status 77 (skipped) without Chromium.
"""
import os
import random
import subprocess

import pages

HERE = os.path.dirname(os.path.abspath(__file__))


def kansoku(program, *arguments):
    subprocess.run([program, "simulate", *arguments], check=True, capture_output=True, text=True, timeout=pages.LIMIT_S)


def trace(path):
    """Jobs of three weeks: sessions of a few, durations of two kinds. The same every time."""
    chance = random.Random(1)
    rows, at = [], 0.0
    while at < 21 * 86400:
        at += chance.expovariate(1 / 1500)
        moment = at
        for _ in range(1 + int(chance.expovariate(0.5))):
            moment += chance.expovariate(1 / 20)
            duration = chance.lognormvariate(4, 0.6) if chance.random() < 0.6 else chance.lognormvariate(8, 1)
            rows.append((moment, duration, chance.choice((1, 1, 1, 2, 8))))
    with open(path, "w", encoding="utf-8") as out:
        out.write("# epoch 2024-01-01 00:00:00\nsubmit_s,duration_s,gpus\n")
        out.writelines(f"{submit:.3f},{duration:.3f},{gpus}\n" for submit, duration, gpus in sorted(rows))


def make_pages(program, folder):
    experiment = os.path.join(HERE, "simulation.toml")
    made = {kind: os.path.join(folder, kind + ".html") for kind in ("run", "sweep", "policies", "fit")}
    kansoku(program, "run", experiment, "-q", "--html", made["run"])
    kansoku(program, "sweep", experiment, "-q", "-r", "3", "--vary", "clusters.training.slots=12,14,18", "--vary",
            "clusters.training.scheduler=fifo,backfill", "--html", made["sweep"])
    kansoku(program, "sweep", experiment, "-q", "-r", "3", "--vary", "clusters.training.scheduler=fifo,shortest,backfill",
            "--vary", "models.churn.loss=0.04,0.08", "--html", made["policies"])
    jobs = os.path.join(folder, "jobs.csv")
    trace(jobs)
    kansoku(program, "fit", jobs, "--format", "plain", "--html", made["fit"])
    return made


def check_run(seen, want):
    want("on average; the busiest cluster training is used" in seen["heading"], f"run: heading {seen['heading']!r}")
    want(seen["titles"][:3] == ["Utilisation of the clusters", "Tasks waiting", "Performance of the models"], f"run: {seen['titles']}")
    want(seen["headings"] == ["Over time", "Waiting", "Clusters", "Models", "Stores", "The run"], f"run: {seen['headings']}")
    want(seen["rows"] == [6, 2, 2, 2, 1], f"run: rows of the tables {seen['rows']}")


def check_sweep(seen, want):
    want(seen["heading"].startswith("Lowest mean time in the system of "), f"sweep: heading {seen['heading']!r}")
    want(len(seen["charts"]) >= 4 and all(count == 6 for count in seen["marks"]), f"sweep: marks {seen['marks']}")
    want(seen["rows"] == [6, 5], f"sweep: rows of the tables {seen['rows']}")
    want("clear" in seen["tags"] and len(seen["tags"]) == 25, f"sweep: tags {seen['tags']}")


def check_fit(seen, want):
    want(seen["heading"].startswith("Durations are best described by a "), f"fit: heading {seen['heading']!r}")
    want(seen["marks"][0] == 19, f"fit: {seen['marks']} quantiles")
    want(seen["rows"][0] >= 5 and seen["rows"][1] >= 10, f"fit: rows of the tables {seen['rows']}")
    want(seen["tags"].count("chosen") == 1 and "kept" in seen["tags"], f"fit: tags {seen['tags']}")


CHECKS = {"run": check_run, "sweep": check_sweep, "policies": check_sweep, "fit": check_fit}


if __name__ == "__main__":
    pages.run(make_pages, CHECKS, __doc__)
