#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py sources | build | operators [--arch 80] [OP...] | numbers | launches | demo [--arch 80]: a part of llama.cpp's CUDA backend on the
software GPU.

  sources     fetches llama.cpp (npm package node-llama-cpp, MIT) and the CPU libraries of the same version into the cache
  build       compiles the part for sm_80 and sm_61, resumable; the sources stay as they are
  operators   test-backend-ops: each operator against the CPU, case by case
  numbers     logits of fixed tokens and the most likely tokens: GPU against CPU, F32, F16 and quantised, graphs on and off
  demo        a generation on CPU and software GPU, and the kernels that took longest
  launches    uprobes on the driver's launches count what the executor counts (root)

The cache is $KANSOKU_LLAMA_CACHE [~/.cache/kansoku/llama]. Exit status 77: cannot be had here (no network, no compiler), with the reason."""
import argparse
import array
import fcntl
import filecmp
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.environ.get("KANSOKU_LLAMA_CACHE") or os.path.expanduser("~/.cache/kansoku/llama")
VERSION = "3.22.1"
PACKAGES = {
    "node-llama-cpp": "a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f",
    "@node-llama-cpp/linux-x64": "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0",
}
SKIPPED = 77


class Unavailable(Exception):
    """Something that this machine does not offer; the test is skipped."""


def say(text):
    print(text, flush=True)


def checked(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def kansoku():
    return os.environ.get("KANSOKU") or os.path.join(ROOT, "build", "kansoku")


def toolkit():
    folder = os.environ.get("SOFTGPU_LIBS") or os.path.join(os.path.dirname(os.path.realpath(kansoku())), "softgpu")
    return os.path.join(folder, "toolkit")


def staged(source, target):
    """Makes a folder like another one. A file that is the same already keeps its time, so whoever builds with it builds nothing again:
    compile commands and times are those of the cache, whichever checkout asks."""
    kept = set()
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            out = os.path.join(target, os.path.relpath(path, source))
            kept.add(out)
            os.makedirs(os.path.dirname(out), exist_ok=True)
            if os.path.islink(path):
                if not os.path.islink(out) or os.path.realpath(out) != os.path.realpath(path):
                    subprocess.run(["ln", "-sfn", os.path.realpath(path), out], check=True)
            elif not os.path.exists(out) or not filecmp.cmp(path, out, shallow=False):
                shutil.copy2(path, out)
                os.utime(out)
    for folder, _, names in os.walk(target):
        for name in names:
            if os.path.join(folder, name) not in kept:
                os.unlink(os.path.join(folder, name))


def staged_toolkit():
    """The toolkit in the cache, beside links to the libraries: the folder that softgpu-clang takes for SOFTGPU_LIBS."""
    folder = os.path.join(CACHE, "softgpu")
    staged(toolkit(), os.path.join(folder, "toolkit"))
    for name in os.listdir(os.path.dirname(toolkit())):
        path = os.path.join(os.path.dirname(toolkit()), name)
        if ".so" in name:
            subprocess.run(["ln", "-sfn", path, os.path.join(folder, name)], check=True)
    return folder


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def fetch(package, wanted):
    """The package's archive in the cache, by the registry's ordinary client, checked by its hash."""
    path = os.path.join(CACHE, package.strip("@").replace("/", "-") + f"-{VERSION}.tgz")
    if os.path.exists(path) and sha256(path) == wanted:
        return path
    say(f"fetching {package}@{VERSION}")
    try:
        checked(["npm", "pack", "--silent", f"{package}@{VERSION}"], cwd=CACHE)
    except (RuntimeError, FileNotFoundError) as error:
        raise Unavailable(f"{package} cannot be fetched: {str(error).splitlines()[0]}") from error
    if not os.path.exists(path) or sha256(path) != wanted:
        raise RuntimeError(f"{path}: not the archive that was expected")
    return path


def sources():
    """The folders of the sources and of the CPU libraries."""
    os.makedirs(CACHE, exist_ok=True)
    source, libraries = os.path.join(CACHE, "llama.cpp"), os.path.join(CACHE, "cpu")
    archives = {package: fetch(package, wanted) for package, wanted in PACKAGES.items()}
    if not os.path.exists(os.path.join(source, ".complete")):
        bundle = os.path.join(CACHE, "llama.bundle")
        with tarfile.open(archives["node-llama-cpp"]) as archive, open(bundle, "wb") as file:
            file.write(archive.extractfile("package/llama/gitRelease.bundle").read())
        subprocess.run(["rm", "-rf", source], check=True)
        checked(["git", "clone", "--quiet", bundle, source])
        os.unlink(bundle)
        open(os.path.join(source, ".complete"), "w", encoding="utf-8").close()
    if not os.path.isdir(libraries):
        part = f"{libraries}.{os.getpid()}.part"
        with tarfile.open(archives["@node-llama-cpp/linux-x64"]) as archive:
            archive.extractall(part)
        os.rename(part, libraries)
    return source, os.path.join(libraries, "package", "bins", "linux-x64")


def build_folder(arch):
    return os.path.join(CACHE, f"lean-{arch}")


def build(arch):
    source, libraries = sources()
    folder = build_folder(arch)
    for tool in ("cmake", "ninja", "clang++-19"):
        if subprocess.run(["which", tool], capture_output=True).returncode != 0:
            raise Unavailable(f"{tool} is missing")
    if not os.path.exists(os.path.join(toolkit(), "nvvm/libdevice/libdevice.10.bc")):
        raise Unavailable(f"no toolkit in {toolkit()}: make softgpu")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    backend = os.path.join(folder, "bin", "libggml-cuda.so")
    softgpu = staged_toolkit()
    staged(HERE, os.path.join(CACHE, "tests"))
    environment = dict(os.environ, KANSOKU=os.path.realpath(kansoku()), SOFTGPU_LIBS=softgpu)
    checked(["cmake", "-G", "Ninja", "-S", os.path.join(CACHE, "tests", "lean"), "-B", folder, f"-DLLAMA={source}", f"-DPREBUILT={libraries}",
             f"-DCMAKE_TOOLCHAIN_FILE={softgpu}/toolkit/softgpu-toolchain.cmake", f"-DCMAKE_CUDA_ARCHITECTURES={arch}"], env=environment)
    with subprocess.Popen(["ninja", "-C", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as ninja:
        lines = []
        for line in ninja.stdout:
            lines.append(line)
            if re.match(r"\[\d+/\d+\]", line) and sys.stdout.isatty():
                say(f"sm_{arch} {line.split(' ')[0]}")
    if ninja.returncode != 0:
        if os.path.exists(backend):
            os.unlink(backend)  # that of before is not to be tested for it
        raise RuntimeError("".join(lines[-40:]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    say(f"sm_{arch}: built in {time.monotonic() - began:.0f} s, {used:.0f} s of processor time")


def run(arch, program, *arguments, settings=None, wrapper=()):
    """Runs a program of the build on a software device of the architecture: its standard output and error."""
    path = os.path.join(build_folder(arch), "bin", program)
    if not os.path.exists(path):
        raise Unavailable("not built: tests/llama/run.py build")
    environment = dict(os.environ, KANSOKU_SOFTGPU_ARCH=f"sm_{arch}", **(settings or {}))
    for name in ("CUDA_VISIBLE_DEVICES", "KANSOKU_SOFTGPU_LOG"):  # a person's own
        environment.pop(name, None)
    command = [*wrapper, kansoku(), "run", "--softgpu", "--", path, *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")


def operators(arch, names):
    """All cases of the operators; those that the part does not hold count as refused."""
    failed = 0
    for name in names or ["ADD", "MUL_MAT", "SOFT_MAX", "RMS_NORM", "ROPE", "GET_ROWS", "SET_ROWS", "CPY", "SWIGLU"]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run(arch, "test-backend-ops", "test", "-b", "CUDA0", "-o", name)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        passed, wrong = len(re.findall(r"\): OK$", text, re.M)), re.findall(r"^.*FAIL$", text, re.M)
        refused = len(re.findall(r"not supported", text))
        whole = re.search(r"(\d+)/(\d+) tests passed", text)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        say(f"sm_{arch} {name}: {passed} passed, {len(wrong)} failed, {refused} refused, {used:.0f} s of processor time")
        if done.returncode != 0 or wrong or whole is None or whole[1] != whole[2] or passed == 0:
            say("\n".join(wrong[:5]) + done.stderr[-2000:])
            failed += 1
    return 1 if failed else 0


def values_of(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


class Models:
    """The generated models: F32, F16, quantised by libllama, and what the quantised ones say in F32."""

    def __init__(self, arch):
        self.arch, self.folder = arch, os.path.join(CACHE, f"models-{sha256(os.path.join(HERE, 'make_model.py'))[:12]}")
        os.makedirs(self.folder, exist_ok=True)

    def path(self, kind):
        return os.path.join(self.folder, kind + ".gguf")

    def make(self, kind):
        path = self.path(kind)
        if os.path.exists(path):
            return path
        part = f"{path}.{os.getpid()}.part"  # tests of both architectures may make it at once
        if kind in ("F32", "F16"):
            checked([sys.executable, os.path.join(HERE, "make_model.py"), part, *(["--half"] if kind == "F16" else [])])
        else:
            source, wanted = (self.make(kind[:-5]), "F32") if kind.endswith("-wide") else (self.make("F32"), kind)
            done = run(self.arch, "generate", "quantize", source, part, wanted)
            if done.returncode != 0:
                raise RuntimeError(f"quantise {kind}: {done.stderr[-2000:]}")
        os.replace(part, path)
        return path


def logits(arch, model, batch, layers, settings=None):
    out = os.path.join(os.path.dirname(model), f"logits-{os.getpid()}")
    done = run(arch, "generate", "logits", model, out, "--batch", str(batch), "--gpu-layers", str(layers), settings=settings)
    if done.returncode != 0:
        raise RuntimeError(f"logits of {model}: {done.stderr[-2000:]}")
    values = values_of(done.stdout)
    if layers > 0 and (not re.search(r"offloaded (\d+)/\1 layers to GPU", done.stderr) or int(values["launches"]) <= 0):
        raise RuntimeError("not all layers were offloaded, or no kernel ran")
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


def numbers(arch, kinds):
    models, failed = Models(arch), 0
    for kind, batch in ((kind, batch) for kind in kinds or KINDS for batch in (1, 64)):
        model = models.make(kind)
        got, cpu = logits(arch, model, batch, 999), logits(arch, model, batch, 0)
        flips, difference = flips_of(got, cpu)
        if kind in ABSOLUTE:
            error, limit = error_of(got, cpu), ABSOLUTE[kind]
            line = f"error {error:.2e} (limit {limit:.0e})"
        else:
            wide = logits(arch, models.make(kind + "-wide"), batch, 0)
            own, error = error_of(cpu, wide), error_of(got, wide)
            multiple = MULTIPLE_OF_OFFSETS.get((arch, kind, batch), MULTIPLE)
            limit = multiple * own
            line = f"error {error:.2e}, the CPU's own {own:.2e} (limit {multiple} times)"
        good = error <= limit and flips == 0
        say(f"sm_{arch} {kind} batch {batch}: {line}, {flips} of {len(cpu)} top tokens differ, largest difference {difference:.2e}"
            f"{'' if good else '  WRONG'}")
        failed += not good
    return 1 if failed | text_differs(arch, models, kinds) else 0


def text_of(arch, model, *options, settings=None):
    done = run(arch, "generate", "text", model, *options, settings=settings)
    if done.returncode != 0:
        raise RuntimeError(f"text of {model}: {done.stderr[-2000:]}")
    return values_of(done.stdout)


def text_differs(arch, models, kinds):
    """The most likely tokens of GPU and CPU, with graphs and without."""
    failed = 0
    for kind in kinds or ["F32", "F16", "Q8_0"]:
        model = models.make(kind)
        cpu = text_of(arch, model, "--gpu-layers", "0")
        for graphs, settings in (("on", {}), ("off", {"GGML_CUDA_DISABLE_GRAPHS": "1"})):
            gpu = text_of(arch, model, settings=settings)
            same = [a.split(":")[0] == b.split(":")[0] for a, b in zip(gpu.get("tokens", "").split(), cpu["tokens"].split())]
            good = len(same) == 64 and all(same) and int(gpu.get("launches", -1)) > 0
            say(f"sm_{arch} {kind} graphs {graphs}: {sum(same)} of {len(same)} tokens equal, first token {gpu.get('first_token_s')} s, "
                f"{gpu.get('token_cpu_ms')} ms of processor time a token, {gpu.get('launches')} launches{'' if good else '  WRONG'}")
            failed += not good
    return failed


def watched(arch, model, tokens, settings):
    """Hits of probes on the driver's entry points during a generation, and the executor's count."""
    program = os.environ.get("LAUNCH_HITS") or os.path.join(ROOT, "build/release/tests/launch_hits")
    if not os.path.exists(program):
        raise Unavailable(f"no {program}: build the tests")
    library = os.path.join(os.path.dirname(os.path.realpath(toolkit())), "libcuda.so.1")
    done = run(arch, "generate", "text", model, "--tokens", str(tokens), settings=settings, wrapper=[program, library])
    if done.returncode == SKIPPED:
        raise Unavailable(done.stdout.strip())
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr[-2000:])
    values = values_of(done.stdout)
    launched = sum(int(value) for name, value in values.items() if name.startswith("cuLaunch"))
    return launched, int(values["launches"]), int(values["cuGraphLaunch"]), int(values["cuStreamEndCapture"])


def launches(arch):
    """Graphs off: one hit a kernel. On: what a capture takes in is no kernel, and each launch of a graph is as many as a token has."""
    model, off = Models(arch).make("F32"), {"GGML_CUDA_DISABLE_GRAPHS": "1"}
    short, _, _, _ = watched(arch, model, 32, off)
    hits, executed, _, _ = watched(arch, model, 64, off)
    nodes, rest = divmod(hits - short, 32)
    good = hits == executed and rest == 0 and nodes > 0
    say(f"sm_{arch} graphs off: {hits} hits, {executed} kernels, {nodes} a token{'' if good else '  WRONG'}")
    if arch == "61":  # llama.cpp uses graphs from sm_80 on
        return 0 if good else 1
    hits, executed, graphs, captures = watched(arch, model, 64, {})
    expected = hits + (graphs - captures) * nodes
    good_on = executed == expected and graphs > 0
    say(f"sm_{arch} graphs on: {hits} hits of which {captures} captures of {nodes}, {graphs} graph launches: {expected} expected, {executed} kernels"
        f"{'' if good_on else '  WRONG'}")
    return 0 if good and good_on else 1


def demo(arch):
    """The same generation on the CPU and on the software device, and the kernels that took longest."""
    build(arch)
    model = Models(arch).make("F16")
    cpu = text_of(arch, model, "--gpu-layers", "0")
    done = run(arch, "generate", "text", model, settings={"KANSOKU_SOFTGPU_TIMES": "10"})
    gpu = values_of(done.stdout)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    layers = re.search(r"offloaded .* layers to GPU", done.stderr)
    if layers is None or int(gpu["launches"]) <= 0:
        raise RuntimeError("nothing ran on the software GPU")
    same = [a.split(":")[0] == b.split(":")[0] for a, b in zip(gpu["tokens"].split(), cpu["tokens"].split())]
    say(f"llama.cpp, generated model of 0.6 M parameters (F16), CUDA backend for sm_{arch} on the software GPU: {layers[0]}")
    for name, values in (("CPU backend", cpu), ("CUDA backend", gpu)):
        say(f"  {name:13} first token after {float(values['first_token_s']):.2f} s, then {1e3 / float(values['token_ms']):.0f} tokens a second")
    say(f"  {sum(same)} of {len(same)} tokens equal, {gpu['launches']} launches")
    say(done.stderr[done.stderr.rindex("kernels by time: "):].strip())
    return 0 if same and all(same) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["sources", "build", "operators", "numbers", "launches", "demo"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--arch", default="80", choices=["61", "80"])
    options = parser.parse_intermixed_args()
    os.makedirs(CACHE, exist_ok=True)
    try:
        # One at a time writes to the cache; whoever tests it waits for that.
        lock = open(os.path.join(CACHE, ".lock"), "w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX if options.verb in ("sources", "build", "demo") else fcntl.LOCK_SH)
        if options.verb == "sources":
            sources()
        elif options.verb == "build":
            for arch in options.names or ["80", "61"]:
                build(arch)
        elif options.verb == "operators":
            return operators(options.arch, options.names)
        elif options.verb == "demo":
            return demo(options.arch)
        elif options.verb == "launches":
            return launches(options.arch)
        else:
            return numbers(options.arch, options.names)
    except Unavailable as reason:
        say(f"skipped: {reason}")
        return SKIPPED
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
