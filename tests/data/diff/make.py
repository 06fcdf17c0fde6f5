#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes profiles of one small job before and after changes, as PyTorch's profiler does: make.py FOLDER.

Calls differ from their mean by 1 %, runs by 0.45 %, as on a GPU (docs/measurements/diff.md); the numbers come from a fixed seed.

  before.json  again.json (another run)  slow.json (rope 10 % slower)  batch.json (twice the batch)  build.json (another build)
  numbers.json (a compiler numbered kernels anew)  plain.json (no steps, ranges named "iteration N")  short.json (3 steps)
"""
import json
import os
import random
import sys

# name, launches a step, microseconds a call, blocks, scaled by the batch
KERNELS = [("embed(float*, int)", 1, 400, 128, True), ("void layer_norm<float, 4>(float const*, int)", 8, 100, 256, True),
           ("void gemm<float, 128, 64>(float const*, int)", 4, 900, 512, True), ("rope(float*, int)", 4, 250, 256, True),
           ("void softmax<float>(float*, int)", 4, 300, 1024, True), ("triton_poi_fused_1", 4, 150, 64, True),
           ("triton_poi_fused_2", 4, 200, 96, True), ("loss(float const*, int)", 1, 500, 128, True),
           ("void adamw<float>(float*, float*, int)", 6, 250, 320, False)]


def write(path, seed, slow=1.0, batch=1, build=False, numbers=False, steps=60, step_name="ProfilerStep#"):
    noise = random.Random(seed)
    events, time_us, correlation = [], 1000.0 * seed, 0
    of_run = {name: noise.gauss(1, 0.0045) for name, *_ in KERNELS}

    def add(category, name, begin, duration, pid, tid, **args):
        events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(begin, 3), "dur": round(duration, 3),
                       "args": args})

    for step in range(steps):
        begin = time_us
        host = time_us
        for name, launches, micros, blocks, scaled in KERNELS:
            if build and name.startswith("void softmax"):
                name, launches, micros = "flash_attention(float*, int)", 2, 380
            shown = name.replace("128, 64", "64, 64") if build else name
            if numbers and "triton" in name:
                shown = name[:-1] + str(3 - int(name[-1]))
            for _ in range(launches):
                correlation += 1
                add("cuda_runtime", "cudaLaunchKernel", host, 4, 1, 1, correlation=correlation)
                host += 5
                duration = micros * noise.gauss(1, 0.01) * of_run.get(name, 1) * (batch if scaled else 1) * (slow if name.startswith("rope") else 1)
                add("kernel", shown, time_us, duration, 0, 7, correlation=correlation, grid=[blocks * (batch if scaled else 1), 1, 1],
                    block=[256, 1, 1])
                time_us += duration + 2
        time_us += 500 * noise.gauss(1, 0.05)
        add("user_annotation", f"{step_name}{step}", begin, time_us - begin, 1, 1)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schemaVersion": 1, "traceEvents": events}, file)


def main():
    folder = sys.argv[1]

    def path(name):
        return os.path.join(folder, name + ".json")

    write(path("before"), 1)
    write(path("again"), 2)
    write(path("slow"), 3, slow=1.1)
    write(path("batch"), 4, batch=2)
    write(path("build"), 5, build=True)
    write(path("numbers"), 6, numbers=True)
    write(path("plain"), 7, step_name="iteration ")
    write(path("short"), 8, steps=3, step_name="iteration ")


if __name__ == "__main__":
    main()
