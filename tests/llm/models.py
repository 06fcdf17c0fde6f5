#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""models.py [KIND...]: makes the models of the tests in llama.cpp's cache and prints their paths. Also: the driver for each build.

Kinds: toy-F32 toy-F16 toy-Q8_0 toy-Q4_0 toy-Q4_K toy-Q6_K (2 layers, width 256), moe-F32 (the same with 4 experts, 2 of them used), and mid
(24 layers, width 512, F32: 17 to 20 ms a token on one thread)."""
import glob
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = os.path.join(os.path.dirname(HERE), "llama")
sys.path.insert(0, LLAMA)
from builds import CACHE, CPU_BUILD, build_folder, checked, sha256, sources  # noqa: E402
import kit  # noqa: E402

SHAPES = {"toy": ["--layers", "2"], "moe": ["--layers", "2", "--experts", "4"], "mid": ["--layers", "24", "--width", "512", "--forward", "1536"]}
TYPES = ["F32", "F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"]
KINDS = [f"toy-{kind}" for kind in TYPES] + ["moe-F32", "mid"]
BUILDS = ["npm", "openmp", "static"]
STATIC_PARTS = ["src/CMakeFiles/llama.dir", *(f"ggml/src/CMakeFiles/{part}.dir" for part in ("ggml", "ggml-base", "ggml-cpu"))]
PREBUILT = ["npm", "stripped"]


def stripped(folder):
    """The same libraries with the names that they export alone."""
    out = os.path.join(CACHE, "llm", "stripped")
    if os.path.isdir(out):
        return out
    part = f"{out}.{os.getpid()}.part"
    os.makedirs(os.path.dirname(part), exist_ok=True)
    shutil.copytree(folder, part)
    for name in os.listdir(part):
        if ".so" in name:
            checked(["strip", "--strip-all", os.path.join(part, name)])
    os.rename(part, out)
    return out


def libraries(build):
    """The folder of the build's shared libraries, and the words that link with them."""
    _, prebuilt = sources()
    if build == "stripped":
        prebuilt = stripped(prebuilt)
    if build in PREBUILT:
        return prebuilt, [f"-L{prebuilt}", "-l:libllama.v0.5.0.so", "-l:libggml.v0.5.0.so", "-l:libggml-base.so", f"-Wl,-rpath,{prebuilt}"]
    folder = os.path.join(build_folder(CPU_BUILD), "bin")
    kit.need(os.path.exists(os.path.join(folder, "libllama.so")), f"{CPU_BUILD} is not built: tests/llama/run.py build {CPU_BUILD}")
    if build == "static":
        parts = [os.path.join(build_folder(CPU_BUILD), part) for part in STATIC_PARTS]
        return folder, [*sorted(path for part in parts for path in glob.glob(f"{part}/**/*.o", recursive=True)), "-fopenmp"]
    return folder, [f"-L{folder}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{folder},-rpath-link,{folder}"]


def program(source, build):
    """The program that is compiled from the source for the build, in the cache. Its name says what it was made of."""
    kit.need_tool("c++")
    tree, _ = sources()
    _, linked = libraries(build)
    # By its name the packs know a program that holds llama.cpp itself.
    stem = ("llama-" if build == "static" else "") + os.path.splitext(os.path.basename(source))[0]
    path = os.path.join(CACHE, "llm", f"{stem}-{build}-{sha256(source)[:12]}")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{os.getpid()}.part"
        checked(["c++", "-std=c++17", "-O1", "-pthread", f"-I{tree}/include", f"-I{tree}/ggml/include", source, "-o", part, *linked, "-ldl"])
        os.replace(part, path)
    return path


def driver(build):
    return program(os.path.join(HERE, "driver.cc"), build)


def settings(build):
    """The environment of a program of the build: npm's CPU backends are loaded from their folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GGML_", "LLAMA_"))}
    return dict(kept, GGML_DIR=libraries(build)[0]) if build in PREBUILT else kept


def quantised(source, out, kind):
    checked([program(os.path.join(LLAMA, "generate.cc"), "npm"), "quantize", source, out, kind], env=settings("npm"),
            cwd=libraries("npm")[0])  # ggml_backend_load_all searches the working folder


def model(kind):
    """The path of the model; it is made once."""
    if kind not in KINDS:
        raise kit.Wrong(f"{kind}: no such model; {' '.join(KINDS)}")
    maker = os.path.join(LLAMA, "make_model.py")
    shape, _, of_weights = kind.partition("-")
    path = os.path.join(CACHE, f"llm-models-{sha256(maker)[:12]}", kind + ".gguf")
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.getpid()}.part"
    if of_weights in ("", "F32", "F16"):
        checked([sys.executable, maker, part, *SHAPES[shape], *(["--half"] if of_weights == "F16" else [])])
    else:
        quantised(model(shape + "-F32"), part, of_weights)
    os.replace(part, path)
    return path


def main(report):
    for kind in sys.argv[1:] or KINDS:
        report.part(kind, lambda: print(model(kind)))


if __name__ == "__main__":
    kit.run(main)
