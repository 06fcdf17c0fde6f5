#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exact.py KANSOKU SOFTGPU_CLANG SAMPLES OUT [LLAMA_BUILD MODEL]: what the library counts against what the executor ran.

Each sample, and a generation of llama.cpp where it is built, runs under `kansoku record --cuda`. The executor of the software device
writes its own list of kernels by count; the recorder knows nothing of it. Equal: the count of every kernel by name, launches within
graphs included; every operation that no counter explains has a slice with a time; no slice without a name. Status 77: not possible
here, with the reason."""
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = ["vector_add", "matrix_product", "reduction", "scan", "histogram", "nbody", "streams", "graphs"]
# Losses that leave an operation without a time, by design.
EXPLAINED = ("cuda_untimed_legacy", "cuda_untimed_programmatic", "cuda_interleaved", "cuda_lost_context", "cuda_unfinished")


def skip(reason):
    print(reason)
    sys.exit(77)


def executed(text):
    """The executor's own list: kernel -> launches."""
    return {match[2]: int(match[1]) for match in re.finditer(r"^\s+[\d.]+ \w+\s+[\d.]+ %\s+(\d+) launch(?:es)?\s+(.+)$", text, re.M)}


def plain(name):
    return subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()


def recorded(kansoku, out, label, command, settings):
    trace = os.path.join(out, label + ".pftrace")
    environment = {**os.environ, "KANSOKU_SOFTGPU_TIMES": "1000", **settings}
    done = subprocess.run([kansoku, "record", "-q", "--no-bpf", "--cuda", "--force", "-o", trace, "--", kansoku, "run", "--softgpu", "--", *command],
                          env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-1000:], done.stderr[-3000:])
        sys.exit(f"{label}: status {done.returncode}")
    shown = subprocess.run(["/usr/bin/python3", os.path.join(HERE, "..", "proto", "check_trace.py"), "--json", trace], capture_output=True, text=True)
    return done.stderr, json.loads(shown.stdout)


def values(text):
    """ "calls=1 failed=0 name=f<a b>": the name is the rest."""
    counts, _, name = text.partition(" name=")
    return {**{key: int(value) for key, value in (word.split("=") for word in counts.split())}, "name": name}


def compare(label, stderr, trace):
    """Problems, one line each."""
    problems = list(trace["problems"])
    totals = [(key.split(".", 3)[3], values(value)) for key, value in trace["metadata"].items() if re.match(r"kansoku\.cuda\.\d+\.(entry|kernel)", key)]
    entries = {key.removeprefix("entry."): row for key, row in totals if key.startswith("entry.")}
    kernels = [row for key, row in totals if key.startswith("kernel.")]
    if not entries:
        return problems + ["no totals in the recording"]
    ran_plain, counted_plain = {}, {}
    for name, count in executed(stderr).items():
        ran_plain[plain(name)] = ran_plain.get(plain(name), 0) + count
    for row in kernels:
        if row["launches"] + row["in_graphs"]:
            counted_plain[plain(row["name"])] = counted_plain.get(plain(row["name"]), 0) + row["launches"] + row["in_graphs"]
    if not ran_plain or ran_plain != counted_plain:
        different = sorted(name for name in {*ran_plain, *counted_plain} if ran_plain.get(name) != counted_plain.get(name))
        problems += [f"{name}: {ran_plain.get(name, 0)} executed, {counted_plain.get(name, 0)} counted" for name in different] or ["nothing ran"]
    slices = trace["slices"]
    for category, begin in (("kernel", "Launch"), ("gpu_memcpy", "Memcpy"), ("gpu_memset", "Memset")):
        timed = sum(row["count"] for row in slices.get(category, {}).values())
        calls = sum(row["calls"] - row["failed"] - row["captured"] for name, row in entries.items()
                    if name.startswith("cu" + begin) and "HostFunc" not in name)
        if timed != calls and not any(loss in stderr for loss in EXPLAINED):
            problems.append(f"{category}: {calls} calls, {timed} slices with a time")
    problems += [f"without a name: {name}" for name in slices.get("kernel", {}) if name.startswith("function@")]
    if not problems:
        by_graphs = sum(row["in_graphs"] for row in kernels)
        print(f"{label}: {sum(counted_plain.values())} launches of {len(counted_plain)} kernels{f', {by_graphs} of them by graphs' if by_graphs else ''}"
              ": all equal")
    return problems


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    kansoku, clang, samples, out = sys.argv[1:5]
    if os.geteuid() != 0:
        skip("needs root: the memory of a process is opened through /proc/PID/map_files")
    if subprocess.run([clang, "--version"], capture_output=True).returncode != 0:
        skip("no clang for the device")
    os.makedirs(out, exist_ok=True)
    jobs = []
    for name in SAMPLES:
        program = os.path.join(out, name)
        built = subprocess.run([clang, "-std=c++17", "-O2", "-o", program, os.path.join(samples, name + ".cu")], capture_output=True, text=True)
        if built.returncode != 0:
            sys.exit(f"{name}: {built.stderr}")
        jobs.append((name, [program], {}))
    if len(sys.argv) == 7:
        build, model = sys.argv[5:]
        path = os.path.join(build, "bin")
        generate = [os.path.join(path, "generate"), "text", model]
        for label, settings in (("llama-graphs", {}), ("llama", {"GGML_CUDA_DISABLE_GRAPHS": "1"})):
            jobs.append((label, ["env", f"LD_LIBRARY_PATH={path}:" + os.environ.get("LD_LIBRARY_PATH", ""), *generate], settings))
    failed = False
    for label, command, settings in jobs:
        if command[0] == "env":  # the libraries of llama.cpp are found by the program's own path
            settings = {**settings, "LD_LIBRARY_PATH": command[1].split("=", 1)[1]}
            command = command[2:]
        for problem in compare(label, *recorded(kansoku, out, label, command, settings)):
            print(f"{label}: {problem}")
            failed = True
    return 1 if failed else 0


sys.exit(main())
