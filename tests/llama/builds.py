#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp in the cache: its sources, the CPU libraries of the same version, and builds of its CUDA backend for the software GPU.

A build is named by its extent and architecture: `lean-80` and `lean-61` are the part that the tests need, `whole-80` is llama.cpp's own tree.
`cpu-openmp` is llama.cpp for this machine's CPU, with OpenMP, which the libraries of the registry lack."""
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
sys.path.insert(0, os.path.dirname(HERE))
from kit import ROOT, Impossible as Unavailable, Wrong, default_kansoku as kansoku, need_tool  # noqa: E402,F401
from kit.outcome import SKIPPED  # noqa: E402,F401

CACHE = os.environ.get("KANSOKU_LLAMA_CACHE") or os.path.expanduser("~/.cache/kansoku/llama")
VERSION = "3.22.1"
PACKAGES = {
    "node-llama-cpp": "a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f",
    "@node-llama-cpp/linux-x64": "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0",
}


def say(text):
    print(text, flush=True)


def checked(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


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
    except (Wrong, FileNotFoundError) as error:
        raise Unavailable(f"{package} cannot be fetched: {str(error).splitlines()[0]}") from error
    if not os.path.exists(path) or sha256(path) != wanted:
        raise Wrong(f"{path}: not the archive that was expected")
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


# llama.cpp's own options for the whole tree, beside the toolchain file. Without NCCL: ggml would search for it in a toolkit that somebody
# has installed, whose headers do not go together with ours.
WHOLE = {"CMAKE_BUILD_TYPE": "Release", "GGML_CUDA": "ON", "GGML_CUDA_FA": "OFF", "GGML_CUDA_NCCL": "OFF", "GGML_NATIVE": "OFF", "GGML_RPC": "ON",
         "LLAMA_OPENSSL": "OFF", "LLAMA_USE_PREBUILT_UI": "OFF"}
PROGRAMS = ["test-backend-ops", "llama-cli", "llama-completion", "llama-server", "ggml-rpc-server", "llama-bench"]

CPU_BUILD = "cpu-openmp"
# As a person builds it: for this very processor and with OpenMP's threads. Without AMX: with it, this llama.cpp dies of an illegal instruction
# at the first Q4_K matrix, unobserved too (Sapphire Rapids).
NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
CPU = {"CMAKE_BUILD_TYPE": "Release", "CMAKE_C_FLAGS": NO_AMX, "CMAKE_CXX_FLAGS": NO_AMX, "GGML_OPENMP": "ON", "GGML_NATIVE": "ON", "LLAMA_OPENSSL": "OFF", "LLAMA_CURL": "OFF",
       "LLAMA_USE_PREBUILT_UI": "OFF"}
CPU_PROGRAMS = ["llama-server", "llama-completion", "llama-cli"]


def architecture(name):
    return name.rpartition("-")[2]


def build_folder(name):
    return os.path.join(CACHE, name)


def compiled(name, folder, targets, environment):
    """Runs ninja with a line of progress every ten seconds; what it says goes to build.log beside the objects."""
    log = os.path.join(folder, "build.log")
    with open(log, "w", encoding="utf-8") as file, \
            subprocess.Popen(["ninja", "-C", folder, *targets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             env=environment) as ninja:
        said = time.monotonic()
        for line in ninja.stdout:
            file.write(line)
            if re.match(r"\[\d+/\d+\]", line) and time.monotonic() - said > 10:
                said = time.monotonic()
                say(f"{name} {line.split(' ')[0]}")
    if ninja.returncode != 0:
        with open(log, encoding="utf-8") as file:
            lines = file.readlines()
        failed = [i for i, line in enumerate(lines) if line.startswith("FAILED")]
        raise Wrong("".join(lines[failed[0]:failed[0] + 40] if failed else lines[-40:]) + f"whole log: {log}")


def forget_other_mathematics(folder, bitcode):
    """Device code that holds another version of the device mathematics is compiled again: no list of what it was made of names them."""
    note = os.path.join(folder, ".libdevice")
    if os.path.exists(note):
        with open(note, encoding="ascii") as file:
            if file.read() == sha256(bitcode):
                return
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".cu.o"):
                os.unlink(os.path.join(path, name))
    os.makedirs(folder, exist_ok=True)
    with open(note, "w", encoding="ascii") as file:
        file.write(sha256(bitcode))


def has(tool):
    return shutil.which(tool) is not None


def build_for_cpu():
    source, _ = sources()
    for tool in ("cmake", "ninja", "c++"):
        need_tool(tool)
    began, folder = time.monotonic(), build_folder(CPU_BUILD)
    launchers = {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX") if has("ccache")}
    checked(["cmake", "-G", "Ninja", "-S", source, "-B", folder, *(f"-D{key}={value}" for key, value in {**CPU, **launchers}.items())])
    compiled(CPU_BUILD, folder, CPU_PROGRAMS, dict(os.environ))
    say(f"{CPU_BUILD}: built in {time.monotonic() - began:.0f} s")


def build(name):
    if name == CPU_BUILD:
        build_for_cpu()
        return
    source, libraries = sources()
    folder = build_folder(name)
    for tool in ("cmake", "ninja", "clang++-19"):
        need_tool(tool)
    if not os.path.exists(os.path.join(toolkit(), "nvvm/libdevice/libdevice.10.bc")):
        raise Unavailable(f"no toolkit in {toolkit()}: make softgpu")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    backend = os.path.join(folder, "bin", "libggml-cuda.so")
    softgpu = staged_toolkit()
    staged(HERE, os.path.join(CACHE, "tests"))
    environment = dict(os.environ, KANSOKU=os.path.realpath(kansoku()), SOFTGPU_LIBS=softgpu)
    forget_other_mathematics(folder, os.path.join(softgpu, "toolkit/nvvm/libdevice/libdevice.10.bc"))
    environment["CCACHE_EXTRAFILES"] = os.path.join(softgpu, "toolkit/nvvm/libdevice/libdevice.10.bc")
    whole = name.startswith("whole-")
    tree = source if whole else os.path.join(CACHE, "tests", "lean")
    options = WHOLE if whole else {"LLAMA": source, "PREBUILT": libraries}
    checked(["cmake", "-G", "Ninja", "-S", tree, "-B", folder, f"-DCMAKE_TOOLCHAIN_FILE={softgpu}/toolkit/softgpu-toolchain.cmake",
             f"-DCMAKE_CUDA_ARCHITECTURES={architecture(name)}", *(f"-D{key}={value}" for key, value in options.items())], env=environment)
    try:
        compiled(name, folder, PROGRAMS if whole else [], environment)
    except Wrong:
        if os.path.exists(backend):
            os.unlink(backend)  # that of before is not to be tested for it
        raise
    if whole:
        link_generate(source, os.path.join(folder, "bin"), os.path.join(softgpu, "toolkit/lib64"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    say(f"{name}: built in {time.monotonic() - began:.0f} s, {used:.0f} s of processor time")


def link_generate(source, folder, libraries):
    """Our generator beside llama.cpp's own programs and with their libraries."""
    checked(["c++", "-std=c++17", "-O1", f"-I{source}/include", f"-I{source}/ggml/include", os.path.join(HERE, "generate.cc"), "-o",
             os.path.join(folder, "generate"), f"-L{folder}", f"-Wl,-rpath,$ORIGIN,-rpath-link,{folder}:{libraries}:{libraries}/stubs", "-lllama",
             "-lggml", "-lggml-base", "-ldl"])


def command(name, program, *arguments, settings=None):
    """The command line and environment of a program of the build on a software device of its architecture."""
    path = os.path.join(build_folder(name), "bin", program)
    if not os.path.exists(path):
        raise Unavailable(f"{program} is not built: tests/llama/run.py build {name}")
    environment = {key: value for key, value in os.environ.items() if key not in ("CUDA_VISIBLE_DEVICES", "KANSOKU_SOFTGPU_LOG")}  # a person's own
    environment.update({"KANSOKU_SOFTGPU_ARCH": f"sm_{architecture(name)}"}, **(settings or {}))
    return [kansoku(), "run", "--softgpu", "--", path, *arguments], environment


def run(name, program, *arguments, settings=None, wrapper=(), timeout=None):
    """Runs it to its end: its standard output and error."""
    words, environment = command(name, program, *arguments, settings=settings)
    return subprocess.run([*wrapper, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                          timeout=timeout)


