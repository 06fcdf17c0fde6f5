#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py sources | build | operators | numbers | launches | programs | evaluate | demo [--build lean-80] [NAME...]: llama.cpp's CUDA backend on
the software GPU.

  sources     fetches llama.cpp (npm package node-llama-cpp, MIT) and the CPU libraries of the same version into the cache
  build       compiles the builds that are named [lean-80 lean-61], resumable; the sources stay as they are. lean-*: the part of the backend
              that the tests need; whole-*: llama.cpp's own tree with all of its backend but flash attention; cpu-openmp: for this CPU
  operators   test-backend-ops: each operator against the CPU, case by case
  numbers     logits of fixed tokens and the most likely tokens: GPU against CPU, by type of the weights, graphs on and off
  launches    uprobes on the driver's launches count what the executor counts (root)
  programs    llama.cpp's command line, server and RPC server generate as they do on the CPU (whole-*)
  evaluate    every case of test-backend-ops but flash attention, resumable, as a table by operator (whole-*)
  demo        a generation on CPU and software GPU, and the kernels that took longest

The cache is $KANSOKU_LLAMA_CACHE [~/.cache/kansoku/llama]. Exit status 77: cannot be had here (no network, no compiler), with the reason."""
import array
import fcntl
import os
import re
import resource
import sys

from builds import CACHE, CPU_BUILD, HERE, ROOT, architecture, build, checked, run, say, sha256, sources, toolkit
import evaluate
import kit
import programs


def operators(variant, names, report):
    """All cases of the operators; those that the part does not hold count as refused."""
    for name in names or ["ADD", "MUL_MAT", "SOFT_MAX", "RMS_NORM", "ROPE", "GET_ROWS", "SET_ROWS", "CPY", "SWIGLU"]:
        report.part(f"{variant} {name}", operator, variant, name)


def operator(variant, name):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(variant, "test-backend-ops", "test", "-b", "CUDA0", "-o", name)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    passed, wrong = len(re.findall(r"\): OK$", text, re.M)), re.findall(r"^.*FAIL$", text, re.M)
    refused = len(re.findall(r"not supported", text))
    whole = re.search(r"(\d+)/(\d+) tests passed", text)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    say(f"{variant} {name}: {passed} passed, {len(wrong)} failed, {refused} refused, {used:.0f} s of processor time")
    good = done.returncode == 0 and not wrong and whole and whole[1] == whole[2] and passed
    kit.expect(good, "\n".join(wrong[:5]) + done.stderr[-2000:])


def values_of(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


class Models:
    """The generated models: F32, F16, quantised by libllama, what the quantised ones say in F32 (Q8_0-wide), and mixtures of four experts of
    each (experts-F16)."""

    def __init__(self, variant):
        self.variant, self.folder = variant, os.path.join(CACHE, f"models-{sha256(os.path.join(HERE, 'make_model.py'))[:12]}")
        os.makedirs(self.folder, exist_ok=True)

    def path(self, kind):
        return os.path.join(self.folder, kind + ".gguf")

    def make(self, kind):
        path = self.path(kind)
        if os.path.exists(path):
            return path
        part = f"{path}.{os.getpid()}.part"  # tests of both architectures may make it at once
        of_weights = kind.removeprefix("experts-")
        experts = ["--experts", "4"] if of_weights != kind else []
        if of_weights in ("F32", "F16"):
            checked([sys.executable, os.path.join(HERE, "make_model.py"), part, *(["--half"] if of_weights == "F16" else []), *experts])
        else:
            source, wanted = (kind[:-5], "F32") if kind.endswith("-wide") else (kind[:-len(of_weights)] + "F32", of_weights)
            done = run(self.variant, "generate", "quantize", self.make(source), part, wanted)
            if done.returncode != 0:
                raise kit.Wrong(f"quantise {kind}: {done.stderr[-2000:]}")
        os.replace(part, path)
        return path


def logits(variant, model, batch, layers, settings=None):
    out = os.path.join(os.path.dirname(model), f"logits-{os.getpid()}")
    done = run(variant, "generate", "logits", model, out, "--batch", str(batch), "--gpu-layers", str(layers), settings=settings)
    if done.returncode != 0:
        raise kit.Wrong(f"logits of {model}: {done.stderr[-2000:]}")
    values = values_of(done.stdout)
    if layers > 0 and (not re.search(r"offloaded (\d+)/\1 layers to GPU", done.stderr) or int(values["launches"]) <= 0):
        raise kit.Wrong("not all layers were offloaded, or no kernel ran")
    numbers = array.array("f")
    with open(out, "rb") as file:
        numbers.frombytes(file.read())
    os.unlink(out)
    width = int(values["vocabulary"])
    return [numbers[begin:begin + width] for begin in range(0, len(numbers), width)]


def error_of(got, want):
    """Squared error over squared sum, of all numbers."""
    top = sum((a - b) ** 2 for x, y in zip(got, want) for a, b in zip(x, y))
    return top / sum(b * b for y in want for b in y)


def flips_of(got, want):
    """Tokens whose top differs although the reference's margin is beyond four times the largest difference."""
    difference = max(abs(a - b) for x, y in zip(got, want) for a, b in zip(x, y))
    flips = 0
    for x, y in zip(got, want):
        first, second = sorted(y)[:-3:-1]
        if first - second > 4 * difference and max(range(len(x)), key=x.__getitem__) != max(range(len(y)), key=y.__getitem__):
            flips += 1
    return flips, difference


# The greatest error; of quantised types as a multiple of the CPU's own against the dequantised model.
ABSOLUTE = {"F32": 1e-6, "F16": 1e-5}
MULTIPLE = 2
# Where llama.cpp's CUDA kernels take a type's offset from the sum of activations before they are quantised, and the CPU from the sum after: by
# architecture, type and batch. mmvq at batch 1, mmq with dp4a, and mmq of Q4_K.
MULTIPLE_OF_OFFSETS = {("80", "Q4_0", 1): 10, ("61", "Q4_0", 1): 10, ("61", "Q4_0", 64): 10, ("80", "Q4_K", 64): 4, ("61", "Q4_K", 64): 4}
KINDS = ["F32", "F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"]


def numbers(variant, kinds, report):
    models = Models(variant)
    for kind, batch in ((kind, batch) for kind in kinds or KINDS for batch in (1, 64)):
        report.part(f"{variant} {kind} batch {batch}", number, variant, models, kind, batch)
    for kind in kinds or ["F32", "F16", "Q8_0"]:
        report.part(f"{variant} {kind} text", text_differs, variant, models, kind)


def number(variant, models, kind, batch):
    model = models.make(kind)
    got, cpu = logits(variant, model, batch, 999), logits(variant, model, batch, 0)
    flips, difference = flips_of(got, cpu)
    of_weights = kind.removeprefix("experts-")
    if of_weights in ABSOLUTE:
        error, limit = error_of(got, cpu), ABSOLUTE[of_weights]
        line = f"error {error:.2e} (limit {limit:.0e})"
    else:
        wide = logits(variant, models.make(kind + "-wide"), batch, 0)
        own, error = error_of(cpu, wide), error_of(got, wide)
        multiple = MULTIPLE_OF_OFFSETS.get((architecture(variant), of_weights, batch), MULTIPLE)
        limit = multiple * own
        line = f"error {error:.2e}, the CPU's own {own:.2e} (limit {multiple} times)"
    good = error <= limit and flips == 0
    say(f"{variant} {kind} batch {batch}: {line}, {flips} of {len(cpu)} top tokens differ, largest difference {difference:.2e}"
        f"{'' if good else '  WRONG'}")
    return 0 if good else 1


def text_of(variant, model, *options, settings=None):
    done = run(variant, "generate", "text", model, *options, settings=settings)
    if done.returncode != 0:
        raise kit.Wrong(f"text of {model}: {done.stderr[-2000:]}")
    return values_of(done.stdout)


def text_differs(variant, models, kind):
    """The most likely tokens of GPU and CPU, with graphs and without: how many of the two differ."""
    failed, model = 0, models.make(kind)
    cpu = text_of(variant, model, "--gpu-layers", "0")
    for graphs, settings in (("on", {}), ("off", {"GGML_CUDA_DISABLE_GRAPHS": "1"})):
        gpu = text_of(variant, model, settings=settings)
        same = [a.split(":")[0] == b.split(":")[0] for a, b in zip(gpu.get("tokens", "").split(), cpu["tokens"].split())]
        good = len(same) == 64 and all(same) and int(gpu.get("launches", -1)) > 0
        say(f"{variant} {kind} graphs {graphs}: {sum(same)} of {len(same)} tokens equal, first token {gpu.get('first_token_s')} s, "
            f"{gpu.get('token_cpu_ms')} ms of processor time a token, {gpu.get('launches')} launches{'' if good else '  WRONG'}")
        failed += not good
    return failed


def watched(variant, model, tokens, settings):
    """Hits of probes on the driver's entry points during a generation, and the executor's count."""
    program = os.environ.get("LAUNCH_HITS") or os.path.join(ROOT, "build/release/tests/launch_hits")
    kit.need(os.path.exists(program), f"no {program}: build the tests")
    library = os.path.join(os.path.dirname(os.path.realpath(toolkit())), "libcuda.so.1")
    done = run(variant, "generate", "text", model, "--tokens", str(tokens), settings=settings, wrapper=[program, library])
    kit.need(done.returncode != 77, done.stdout.strip())
    if done.returncode != 0:
        raise kit.Wrong(done.stdout + done.stderr[-2000:])
    values = values_of(done.stdout)
    launched = sum(int(value) for name, value in values.items() if name.startswith("cuLaunch"))
    return launched, int(values["launches"]), int(values["cuGraphLaunch"]), int(values["cuStreamEndCapture"])


def launches(variant, _names, report):
    """Graphs off: one hit a kernel. On: what a capture takes in is no kernel, and each launch of a graph is as many as a token has."""
    model, nodes = Models(variant).make("F32"), 0

    def off():
        nonlocal nodes
        settings = {"GGML_CUDA_DISABLE_GRAPHS": "1"}
        short, _, _, _ = watched(variant, model, 32, settings)
        hits, executed, _, _ = watched(variant, model, 64, settings)
        nodes, rest = divmod(hits - short, 32)
        good = hits == executed and rest == 0 and nodes > 0
        say(f"{variant} graphs off: {hits} hits, {executed} kernels, {nodes} a token{'' if good else '  WRONG'}")
        return 0 if good else 1

    def on():
        kit.need(nodes > 0, "graphs off tell how many kernels a token has")
        hits, executed, graphs, captures = watched(variant, model, 64, {})
        expected = hits + (graphs - captures) * nodes
        good = executed == expected and graphs > 0
        say(f"{variant} graphs on: {hits} hits of which {captures} captures of {nodes}, {graphs} graph launches: {expected} expected, {executed} kernels"
            f"{'' if good else '  WRONG'}")
        return 0 if good else 1
    report.part("graphs off", off)
    if architecture(variant) != "61":  # llama.cpp uses graphs from sm_80 on
        report.part("graphs on", on)


def demo(variant):
    """The same generation on the CPU and on the software device, and the kernels that took longest."""
    build(variant)
    model = Models(variant).make("F16")
    cpu = text_of(variant, model, "--gpu-layers", "0")
    done = run(variant, "generate", "text", model, settings={"KANSOKU_SOFTGPU_TIMES": "10"})
    gpu = values_of(done.stdout)
    if done.returncode != 0:
        raise kit.Wrong(done.stderr[-2000:])
    layers = re.search(r"offloaded .* layers to GPU", done.stderr)
    if layers is None or int(gpu["launches"]) <= 0:
        raise kit.Wrong("nothing ran on the software GPU")
    same = [a.split(":")[0] == b.split(":")[0] for a, b in zip(gpu["tokens"].split(), cpu["tokens"].split())]
    say(f"llama.cpp, generated model of 0.6 M parameters (F16), CUDA backend for sm_{architecture(variant)} on the software GPU: {layers[0]}")
    for name, values in (("CPU backend", cpu), ("CUDA backend", gpu)):
        say(f"  {name:13} first token after {float(values['first_token_s']):.2f} s, then {1e3 / float(values['token_ms']):.0f} tokens a second")
    say(f"  {sum(same)} of {len(same)} tokens equal, {gpu['launches']} launches")
    say(done.stderr[done.stderr.rindex("kernels by time ("):].strip())
    return 0 if same and all(same) else 1


VERBS = {"operators": operators, "numbers": numbers, "launches": launches, "demo": lambda variant, _, report: report.part("demo", demo, variant),
         "programs": lambda variant, _, report: programs.run_all(variant, Models(variant), report), "evaluate": evaluate.evaluate}


def locked(exclusive):
    """The cache's lock: one at a time writes, and whoever tests waits for that."""
    lock, kind = open(os.path.join(CACHE, ".lock"), "w", encoding="utf-8"), fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another run on {CACHE}")
        fcntl.flock(lock, kind)
    return lock


def perform(verb, variant, names, report):
    if verb == "sources":
        report.part(verb, lambda: sources() and None)
    elif verb == "build":
        for name in names or ["lean-80", "lean-61"]:
            report.part(f"build {name}", build, name)
    else:
        return VERBS[verb](variant, names, report)
    return None


def main(report):
    parser = kit.parser(__doc__, False)
    parser.add_argument("verb", choices=["sources", "build", *VERBS])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--build", help="which build [lean-80; of programs and evaluate whole-80]")
    options = parser.parse_intermixed_args()
    variant = options.build or ("whole-80" if options.verb in ("programs", "evaluate") else "lean-80")
    for name in [variant, *(options.names if options.verb == "build" else [])]:
        if re.fullmatch(r"(lean|whole)-\d\d", name) is None and (name != CPU_BUILD or options.verb != "build"):
            parser.error(f"{name}: no build's name (lean-80, lean-61, whole-80; of build cpu-openmp)")
    os.makedirs(CACHE, exist_ok=True)
    with locked(options.verb in ("sources", "build", "demo")):
        return perform(options.verb, variant, options.names, report)


if __name__ == "__main__":
    kit.run(main)
