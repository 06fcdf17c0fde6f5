#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""beside.py OTHER [NEW]: two versions of Kansoku observe one process at the same time, each with its own probes, and what they tell is
compared: the chosen addresses, the calls with their arguments and times (compare_recordings), and what two agents counted in their
windows. For whoever changes capture: OTHER is the program of before. Needs root and Debian's python3-torch; takes a minute. Results are
in docs/measurements/trace-fidelity.md."""
import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

BUILD = pathlib.Path(kit.ROOT) / "build/release"
# It waits, or trains while it waits, until the file `go` is there, then trains so many steps of two batches.
STEPS = 60
JOB = """
import os, sys, time
import torch
from torch import nn
folder, warms_up, steps = sys.argv[1], sys.argv[2] == "warm", int(sys.argv[3])
torch.manual_seed(1)
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + folder + "/store", rank=0, world_size=1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(32, 64), torch.randn(32, 8))

def train():
    for x, y in torch.utils.data.DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        torch.distributed.all_reduce(loss.detach())
        optimizer.step()

open(folder + "/ready", "w").close()
while not os.path.exists(folder + "/go"):
    if warms_up:
        train()
    time.sleep(0.01)  # allowed: the pause of a poll loop
if warms_up:
    open(folder + "/quiet", "w").close()
    while not os.path.exists(folder + "/count"):
        time.sleep(0.01)  # allowed: the pause of a poll loop
for step in range(steps):
    train()
open(folder + "/done", "w").close()
while warms_up and not os.path.exists(folder + "/leave"):
    time.sleep(0.01)  # allowed: the pause of a poll loop
"""


def there(job, path):
    job.wait_for(lambda: os.path.exists(path), path, 120)


def sites(text):
    """Address and reason of each probe, by library and symbol."""
    return sorted(line.strip() for line in text.splitlines() if re.search(r"\+\d+ ", line))


def record(folder, job, programs, packs):
    """Both record the job at once; each probe of one is beside that of the other."""
    recorders = []
    for name, program in programs:
        recorders.append(subprocess.Popen(kit.record_command(program, folder + "/" + name + ".pftrace", "--probes", packs, "--explain", pids=[job.pid]),
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return recorders


def until_attached(recorder, library):
    for line in recorder.stderr:
        if re.search("attached .*" + re.escape(library), line):
            return
    raise kit.Wrong("nothing was attached to " + library)


def compare_records(programs, packs, library, categories):
    with tempfile.TemporaryDirectory() as folder:
        job = kit.Job(["/usr/bin/python3", "-c", JOB, folder, "wait", str(STEPS)])
        there(job, folder + "/ready")
        recorders = record(folder, job, programs, packs)
        for recorder in recorders:
            until_attached(recorder, library)
        open(folder + "/go", "w").close()
        job.wait()
        texts = [recorder.communicate()[0] for recorder in recorders]
        one, other = sites(texts[0]), sites(texts[1])
        print("%s: %d probes, %s" % (packs, len(one), "sites are equal" if one == other and one else "SITES DIFFER"))
        result = subprocess.run([str(BUILD / "tests/compare_recordings"), *[folder + "/" + name + ".pftrace" for name, _ in programs],
                                 *categories], stdout=subprocess.PIPE, text=True)
        print(result.stdout, end="")
        return 0 if result.returncode == 0 and one == other and one else 1


def rows_of(path, pid):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["pid"] == str(pid) and None not in row.values()]


def last_time(path, job):
    return max((float(row["time_s"]) for row in rows_of(path, job.pid)), default=0)


def until_windows(path, job, holds, behind=0):
    """Until three windows in a row, all after the time `behind`, hold; the time of the last."""
    def last():
        rows = [row for row in rows_of(path, job.pid)[-3:] if float(row["time_s"]) > behind]
        return len(rows) == 3 and all(map(holds, rows)) and float(rows[-1]["time_s"])
    return job.wait_for(last, "such windows in " + path, 120, 0.1)


def total(rows, begin, name):
    """Of a rate or share, over the windows behind `begin`: a count, or seconds."""
    times = [float(row["time_s"]) for row in rows]
    return sum(float(row[name] or 0) * (end - start) for row, start, end in zip(rows[1:], times, times[1:]) if start >= begin)


def compare_windows(programs):
    """Two agents watch one process, which is quiet, trains, and is quiet again: what each counted in between."""
    def is_busy(row):
        return float(row["step_rate"] or 0) > 0

    with tempfile.TemporaryDirectory() as folder:
        job = kit.Job(["/usr/bin/python3", "-c", JOB, folder, "warm", str(10 * STEPS)])
        there(job, folder + "/ready")
        paths = {name: folder + "/" + name + ".csv" for name, _ in programs}
        agents = [subprocess.Popen([program, "watch", "-q", "--no-history", "--state", folder + "/" + name, "--features", paths[name]])
                  for name, program in programs]
        for path in paths.values():
            until_windows(path, job, is_busy)
        open(folder + "/go", "w").close()
        there(job, folder + "/quiet")
        begins = {name: until_windows(path, job, lambda row: not is_busy(row)) for name, path in paths.items()}
        open(folder + "/count", "w").close()
        there(job, folder + "/done")
        # A short training may be over before its first window is told.
        ends = {path: last_time(path, job) for path in paths.values()}
        for path, end in ends.items():
            until_windows(path, job, lambda row: not is_busy(row), end)
        rows = {name: rows_of(path, job.pid) for name, path in paths.items()}
        open(folder + "/leave", "w").close()
        job.wait()
        for agent in agents:
            agent.terminate()
            agent.wait()
        fine = True
        for feature in ("step_rate", "collective_rate", "collective_bytes", "input_share", "optimizer_share", "collective_share"):
            told = [total(rows[name], begins[name], feature) for name, _ in programs]
            is_count = not feature.endswith("_share")
            fine = fine and told[0] > 0 and (not is_count or abs(told[0] - told[1]) < 0.001 * told[0])
            print("windows, %s: %.4g and %.4g%s" % (feature, *told, "" if is_count else " s"))
        return 0 if fine else 1


def main(report):
    other = os.path.abspath(sys.argv[1])
    new = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else str(BUILD / "kansoku")
    programs = [("other", other), ("new", new)]
    report.part("Python", compare_records, programs, "default,-sched,-python", "libtorch_python", ["backward", "step", "collective"])
    report.part("torch-ops", compare_records, programs, "torch-ops", "libtorch_cpu", ["torch-ops"])
    report.part("windows", compare_windows, programs)


if __name__ == "__main__":
    kit.run(main)
