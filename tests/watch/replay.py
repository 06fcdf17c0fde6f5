# SPDX-License-Identifier: Apache-2.0
"""What the present program says to the windows that parts have recorded: `kansoku detect replay` over their features.csv, with the model
that it learns of the clean part's. Writes replayed.jsonl beside arrivals.jsonl, of the same form; told_ns, the end of the window, stands
for the arrival. For changes to detection: nothing has to be run again."""
import json
import os
import subprocess

from host import Impossible, need
import baselines


def replay(options, *arguments):
    done = subprocess.run([options.kansoku, "detect", "replay", *arguments], capture_output=True, text=True, check=False)
    need(done.returncode in (0, 10), f"kansoku detect replay: {done.stderr.strip()[-300:]}")
    return done.stdout


def recorded(root, name):
    """The table of a part, and its job's name in it."""
    folder = os.path.join(root, name)
    with open(os.path.join(folder, "part.json"), encoding="utf-8") as file:
        ranks = set(json.load(file)["ranks"])
    table = os.path.join(folder, "features.csv")
    _, jobs = baselines.read_rows(table, ranks)
    need(len(jobs) == 1, f"{name}: its processes belong to {len(jobs)} jobs")
    return table, jobs.pop()


def replay_parts(options, parts, is_done):
    for part in (part for part in parts.values() if part.kind in ("faults", "soak") and is_done(options.root, part.name)):
        try:
            model = os.path.join(options.root, part.needs, "replayed.model")
            table, job = recorded(options.root, part.needs)
            replay(options, table, "--job", job, "--learn", f"{options.learn_s}s", "--save", model)
            table, job = recorded(options.root, part.name)
            lines = replay(options, table, "--job", job, "--model", model, "--json").splitlines()
        except Impossible as reason:
            print(f"{part.name}: {reason}")
            continue
        with open(os.path.join(options.root, part.name, "replayed.jsonl"), "w", encoding="utf-8") as out:
            for incident in map(json.loads, lines):
                out.write(json.dumps({"arrived_s": int(incident["told_ns"]) / 1e9, "incident": incident}) + "\n")
        print(f"{part.name}: {len(lines)} lines")
