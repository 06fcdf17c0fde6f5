#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_job.py KANSOKU NAME PAIRS COMMAND...: what the CUDA library costs a whole program on the software GPU.

Runs the program with the library asleep, sampling and timing every operation, each right after a run without the library, and prints the
median of the differences of processor time with its 95 % interval. No recorder is there: the library alone."""
import os
import random
import resource
import subprocess
import sys
import time


def cost(kansoku, mode, command):
    environment = {key: value for key, value in os.environ.items() if key != "KANSOKU_CUDA"}
    library = [] if mode == "off" else ["--cuda"]
    if mode in ("sampled", "every"):
        environment["KANSOKU_CUDA"] = mode
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([kansoku, "run", "--softgpu", *library, "--", *command], env=environment, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    kansoku, name, pairs, command = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    random.seed(1)
    cost(kansoku, "every", command)  # files are read, pages are there
    added, walls, off = {"asleep": [], "sampled": [], "every": []}, {}, []
    for _ in range(pairs):
        for mode in random.sample(sorted(added), 3):
            order = ["off", mode]
            random.shuffle(order)
            result = {one: cost(kansoku, one, command) for one in order}
            added[mode].append(result[mode][0] / result["off"][0] - 1)
            walls.setdefault(mode, []).append(result[mode][1] / result["off"][1] - 1)
            off.append(result["off"][0])
    for mode, values in added.items():
        resamples = sorted(median(random.choices(values, k=len(values))) for _ in range(2000))
        print(f"bench cuda/job name={name} mode={mode} pairs={pairs} off_cpu_s={median(off):.3f} cpu_adds={100 * median(values):.2f}% "
              f"low={100 * resamples[50]:.2f}% high={100 * resamples[1949]:.2f}% wall_adds={100 * median(walls[mode]):.2f}%")


main()
