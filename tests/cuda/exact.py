#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exact.py KANSOKU SOFTGPU_CLANG SAMPLES OUT [LLAMA_BUILD MODEL]: what the library counts against what the executor ran.

Each sample, each section of rules.cu, Halide where it is installed, and a generation of llama.cpp where it is built, run under `kansoku record --cuda`. The executor of the software device
writes its own list of kernels by count; the recorder knows nothing of it; what rules.cu counts itself is a third list. Equal: the count of every kernel by name, launches within
graphs included; every operation that no counter explains has a slice with a time; no slice without a name. Status 77: not possible
here, with the reason."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
import rules  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = ["vector_add", "matrix_product", "reduction", "scan", "histogram", "nbody", "streams", "graphs"]
# Losses that leave an operation without a time, by design.
EXPLAINED = ("cuda_untimed_legacy", "cuda_untimed_programmatic", "cuda_interleaved", "cuda_lost_context", "cuda_unfinished")


# The library calls these for itself, so the driver counts more of them than the program made; or it is switched on only after them.
OWN_CALLS = {"cuEventRecord", "cuEventQuery", "cuThreadExchangeStreamCaptureMode", "cuGetProcAddress", "cuGetProcAddress_v2", "cuInit",
             "cuGraphInstantiateWithFlags", "cuGraphExecDestroy"}


def recorded(kansoku, out, label, command, settings):
    """The executor's own counts (docs/softgpu-tests.md), and the recording."""
    trace, counts = os.path.join(out, label + ".pftrace"), os.path.join(out, label + ".counts")
    kit.remove_files(counts)
    done = kit.record(kansoku, trace, "-q", "--no-bpf", "--cuda", "--force", of=[kansoku, "run", "--softgpu", "--", *command],
                      env={**os.environ, "KANSOKU_SOFTGPU_COUNTS": counts, **settings})
    kit.need(done.returncode != 77, done.stdout.strip())
    kit.expect(done.returncode == 0, f"status {done.returncode}: {done.stdout[-1000:]} {done.stderr[-3000:]}")
    shown = subprocess.run(["/usr/bin/python3", os.path.join(HERE, "..", "proto", "check_trace.py"), "--json", trace], capture_output=True, text=True)
    return kit.read_counts(kit.the_file(counts)), json.loads(shown.stdout)


def values(text):
    """ "calls=1 failed=0 name=f<a b>": the name is the rest."""
    counts, _, name = text.partition(" name=")
    return {**{key: int(value) for key, value in (word.split("=") for word in counts.split())}, "name": name}


def unlike(what, ours, theirs):
    return [f"{what} {line}" for line in kit.differences(theirs, ours, "by the executor", "counted")]


def compare(label, ran, trace, own=None):
    """Problems, one line each. `own`: what the program counted itself."""
    unrun = {} if own is None else own["unrun"]
    totals = [(key.split(".", 3)[3], values(value)) for key, value in trace["metadata"].items()
              if re.match(r"kansoku\.cuda\.\d+\.(entry|kernel|graphs)\.", key)]
    entries = {key.removeprefix("entry."): row for key, row in totals if key.startswith("entry.")}
    kernels = [row for key, row in totals if key.startswith("kernel.")]
    in_graphs = {key.removeprefix("graphs."): row["count"] for key, row in totals if key.startswith("graphs.")}
    if not entries or not (ran["kernel"] or own):
        return ["no totals in the recording"]
    by_kernel = {}
    for row in kernels:
        if row["launches"] + row["in_graphs"]:
            by_kernel[row["name"]] = by_kernel.get(row["name"], 0) + row["launches"] + row["in_graphs"]
    problems = list(trace["problems"]) + ([] if own is None else rules.unlike_executor(own, ran, rules.LIBRARY_CALLS))
    # What an error kept from running was launched. What an altered graph runs is not said; how often it ran, is.
    launched = {name: numbers[0] + unrun.get("kernel " + name, [0])[0] for name, numbers in {**dict.fromkeys(
        (name.removeprefix("kernel ") for name in unrun if name.startswith("kernel ")), [0]), **ran["kernel"]}.items()}
    unknown = unrun.get("unknown_graph", [0])[0]
    problems += unlike("launches of", {"unknown graphs": in_graphs.get("unknown", 0)}, {"unknown graphs": unknown})
    if unknown == 0:
        problems += unlike("kernel", by_kernel, launched)
    problems += [f"kernel {name}: {count} counted, of {launched.get(name, 0)}" for name, count in by_kernel.items() if count > launched.get(name, 0)]
    # Functions that this driver lacks have no counts there.
    made = {name: (row["calls"], row["calls"] - row["failed"]) for name, row in entries.items()
            if name not in OWN_CALLS and (name in ran["call"] or row["calls"] != row["failed"])}
    problems += unlike("calls of", made, {name: tuple(numbers) for name, numbers in ran["call"].items() if name in made})
    done = lambda begin: {name: row["operations"] for name, row in entries.items() if name.startswith(begin)}
    for what, begin, did in (("copies", "cuMemcpy", "copy_"), ("sets", "cuMemset", "set")):
        count = sum(numbers[0] for name, numbers in ran["did"].items() if name.startswith(did))
        problems += unlike("number of", {what: sum(done(begin).values()) + in_graphs.get(what, 0)}, {what: count})
        if what not in in_graphs:
            size = sum(numbers[1] for name, numbers in ran["did"].items() if name.startswith(did))
            problems += unlike("bytes of", {what: sum(row["bytes"] for name, row in entries.items() if name.startswith(begin))}, {what: size})
    slices = trace["slices"]
    costs = [values(value) for key, value in trace["metadata"].items() if re.fullmatch(r"kansoku\.cuda\.\d+\.cost", key)]
    nodes = sum(cost["nodes"] for cost in costs)
    chained = sum(cost["chained"] - cost["chains"] for cost in costs)  # launches that share the slice of another
    # So many may have no time, and no more.
    excused = sum(count for name, count in trace["losses"].items() if name in EXPLAINED)
    # After an error of the context no event of it can be read any more: counted, and told with the recording.
    is_readable = not any(name.startswith("kernel ") for name in unrun)
    short = 0
    for category, begin in (("kernel", "cuLaunch"), ("gpu_memcpy", "cuMemcpy"), ("gpu_memset", "cuMemset")):
        # A batch has one time for all its copies.
        calls = sum(entries[name]["calls"] - entries[name]["failed"] if "Batch" in name else count
                    for name, count in done(begin).items() if "HostFunc" not in name)
        timed = sum(row["count"] for row in slices.get(category, {}).values()) + (chained if category == "kernel" else 0)
        nodes -= timed - calls
        short += max(0, calls - timed)
        if timed + excused < calls and is_readable:
            problems.append(f"{category}: {calls} calls, {timed} slices with a time, {excused} counted as lost")
    if short > excused and is_readable:
        problems.append(f"{short} operations without a time, {excused} counted as lost")
    if not 0 <= nodes <= excused and is_readable:
        problems.append(f"nodes of graphs: {nodes} more were timed than there are slices")
    problems += [f"without a name: {name}" for name in slices.get("kernel", {}) if name.startswith("function@")]
    if not problems:
        graphs = sum(row["in_graphs"] for row in kernels)
        print(f"{label}: {sum(by_kernel.values())} launches of {len(by_kernel)} kernels, {graphs} of them by graphs; {sum(c for c, _ in made.values())} calls of "
              f"{len(made)} functions; {sum(done('cuMemcpy').values())} copies: all equal{', some without a time: ' + str(short) if short else ''}")
    return problems


def main(report):
    kansoku, clang, samples, out, *llama = kit.words(__doc__, 4, 6)
    os.environ["KANSOKU"] = os.path.abspath(kansoku)  # for the compiler
    kit.need_root()
    kit.need_clang(clang)
    os.makedirs(out, exist_ok=True)
    jobs = [(name, [kit.compile_for_device(kansoku, os.path.join(out, name), "-std=c++17", "-O2", os.path.join(samples, name + ".cu"), clang=clang)], {})
            for name in SAMPLES]
    if kit.is_sanitized():
        report.skip("halide", "it loads the driver, which has a sanitizer, while it runs")
    elif subprocess.run(["/usr/bin/python3", "-c", "import halide, numpy"], capture_output=True).returncode == 0:
        jobs.append(("halide", ["/usr/bin/python3", os.path.join(samples, "..", "halide", "halide_demo.py")], {}))
    else:
        report.skip("halide", "not installed")
    if llama:
        build, model = llama
        path = os.path.join(build, "bin")
        libraries = {"LD_LIBRARY_PATH": f"{path}:" + os.environ.get("LD_LIBRARY_PATH", "")}  # found by the program's own path
        for label, settings in (("llama-graphs", {}), ("llama", {"GGML_CUDA_DISABLE_GRAPHS": "1"})):
            jobs.append((label, [os.path.join(path, "generate"), "text", model], {**libraries, **settings}))
    program = rules.build(clang, out)
    for name in rules.sections():
        jobs.append(("rules." + name, [program, name, os.path.join(out, "rules." + name)], {}))

    def one(label, command, settings):
        result = recorded(kansoku, out, label, command, settings)
        return compare(label, *result, kit.read_counts(command[2]) if label.startswith("rules.") else None)
    for job in jobs:
        report.part(job[0], one, *job)


kit.run(main)
