#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""beside.py OTHER [NEW]: two versions of Kansoku record one process at the same time, each with its own probes, and what they tell is
compared: the chosen addresses, the calls with their arguments and times (compare_recordings). For whoever changes capture: OTHER is the program of before. Needs root and Debian's python3-torch; takes a minute. Results are
in docs/evaluation.md."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
BUILD = SOURCE / "build/release"
JOB = """
import os, sys, time
import torch
from torch import nn
torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(32, 64), torch.randn(32, 8))
open(sys.argv[1] + "/ready", "w").close()
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.01)  # allowed: the pause of a poll loop
for step in range(60):
    for x, y in torch.utils.data.DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
print("done")
"""


def wait_for(path, process):
    until = time.time() + 120
    while not os.path.exists(path):
        if process.poll() is not None or time.time() > until:
            sys.exit("%s did not come" % path)
        time.sleep(0.02)  # allowed: the pause of a poll loop


def sites(text):
    """Address and reason of each probe, by library and symbol."""
    return sorted(line.strip() for line in text.splitlines() if re.search(r"\+\d+ ", line))


def record(folder, job, programs, packs):
    """Both record the job at once; each probe of one is beside that of the other."""
    recorders = []
    for name, program in programs:
        recorders.append(subprocess.Popen(
            [program, "record", "-p", str(job.pid), "--probes", packs, "--explain", "-o", folder + "/" + name + ".pftrace"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return recorders


def until_attached(recorder, library):
    for line in recorder.stderr:
        if re.search("attached .*" + re.escape(library), line):
            return
    sys.exit("nothing was attached to " + library)


def compare_records(programs, packs, library, categories):
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.Popen(["/usr/bin/python3", "-c", JOB, folder], stdout=subprocess.PIPE, text=True)
        wait_for(folder + "/ready", job)
        recorders = record(folder, job, programs, packs)
        for recorder in recorders:
            until_attached(recorder, library)
        open(folder + "/go", "w").close()
        job.communicate()
        texts = [recorder.communicate()[0] for recorder in recorders]
        one, other = sites(texts[0]), sites(texts[1])
        print("%s: %d probes, %s" % (packs, len(one), "sites are equal" if one == other and one else "SITES DIFFER"))
        result = subprocess.run([str(BUILD / "tests/compare_recordings"), *[folder + "/" + name + ".pftrace" for name, _ in programs],
                                 *categories], stdout=subprocess.PIPE, text=True)
        print(result.stdout, end="")
        return result.returncode == 0 and one == other and len(one) > 0


def main():
    other = os.path.abspath(sys.argv[1])
    new = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else str(BUILD / "kansoku")
    programs = [("other", other), ("new", new)]
    fine = compare_records(programs, "default,-sched,-python", "libtorch_python", ["backward", "step", "collective"])
    fine = compare_records(programs, "torch-ops", "libtorch_cpu", ["torch-ops"]) and fine
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
