# SPDX-License-Identifier: Apache-2.0
"""What the present program says to the windows that parts have recorded: `kansoku detect replay` over their features.csv, with the model
that it learns of the clean part's. Writes replayed.jsonl beside arrivals.jsonl, of the same form; told_ns, the end of the window, stands
for the arrival. For changes to detection: nothing has to be run again."""
import json
import os
import subprocess
import tempfile

from kit import Impossible, Wrong, expect


def replay(kansoku, *arguments):
    """(lines as score.incidents_of() takes them, what it says at the end)"""
    done = subprocess.run([kansoku, "detect", "replay", *arguments, "--json"], capture_output=True, text=True, check=False)
    expect(done.returncode in (0, 10), f"kansoku detect replay: {done.stderr.strip()[-300:]}")
    *incidents, end = map(json.loads, done.stdout.splitlines())
    expect(end["schema"] == "kansoku.watch_replay/1", "kansoku detect replay: no line at its end")
    return [{"arrived_s": int(incident["told_ns"]) / 1e9, "incident": incident} for incident in incidents], end


def recorded(root, name):
    """The table of a part, and its job's name in it."""
    import baselines  # numpy, which judging what was recorded does without
    folder = os.path.join(root, name)
    with open(os.path.join(folder, "part.json"), encoding="utf-8") as file:
        ranks = set(json.load(file)["ranks"])
    table = os.path.join(folder, "features.csv")
    _, jobs = baselines.read_rows(table, ranks)
    expect(len(jobs) == 1, f"{name}: its processes belong to {len(jobs)} jobs")
    return table, jobs.pop()


def replay_parts(options, parts, is_done):
    for part in (part for part in parts.values() if part.kind in ("faults", "soak") and is_done(options.root, part.name)):
        try:
            model = os.path.join(options.root, part.needs, "replayed.model")
            table, job = recorded(options.root, part.needs)
            replay(options.kansoku, table, "--job", job, "--learn", f"{options.learn_s}s", "--save", model)
            table, job = recorded(options.root, part.name)
            lines, _ = replay(options.kansoku, table, "--job", job, "--model", model)
        except (Impossible, Wrong) as reason:
            print(f"{part.name}: {reason}")
            continue
        with open(os.path.join(options.root, part.name, "replayed.jsonl"), "w", encoding="utf-8") as out:
            for line in lines:
                out.write(json.dumps(line) + "\n")
        print(f"{part.name}: {len(lines)} lines")


def clean_hours(options, parts):
    """All clean parts of a job in one run of the detector, with the model of the first: how many windows it flags, and how many false
    alarms a day that lets expect. Yields (job, parts, what it says at the end, incidents)."""
    for needs in sorted({part.needs for part in parts if part.kind == "soak"}):
        soaks = [part for part in parts if part.kind == "soak" and part.needs == needs]
        with tempfile.TemporaryDirectory() as folder:
            model, whole = os.path.join(folder, "model"), os.path.join(folder, "features.csv")
            table, job = recorded(options.root, needs)
            replay(options.kansoku, table, "--job", job, "--learn", f"{options.learn_s}s", "--save", model)
            with open(whole, "w", encoding="utf-8") as out:
                for index, part in enumerate(soaks):
                    table, job = recorded(options.root, part.name)
                    with open(table, encoding="utf-8") as file:
                        head, *lines = file.read().splitlines(keepends=True)
                    out.writelines(([head] if index == 0 else []) + [line for line in lines if line.endswith("\n")])
            lines, end = replay(options.kansoku, whole, "--job", job, "--model", model)
        yield soaks[0].job, soaks, end, len({line["incident"]["id"] for line in lines})
