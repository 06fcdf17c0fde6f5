# SPDX-License-Identifier: Apache-2.0
"""The program rules.cu: what it does in known numbers, and whether the executor of the software device says the same."""
import collections
import os
import subprocess

# The library calls these for itself.
LIBRARY_CALLS = {"cuEventRecord", "cuEventQuery", "cuEventCreate", "cuEventElapsedTime", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetDevice",
                 "cuStreamGetCtx", "cuStreamIsCapturing", "cuStreamCreateWithPriority", "cuThreadExchangeStreamCaptureMode", "cuDriverGetVersion",
                 "cuGetProcAddress", "cuGetProcAddress_v2", "cuDevicePrimaryCtxGetState", "cuGraphGetNodes", "cuGraphNodeGetType",
                 "cuGraphKernelNodeGetParams_v2", "cuGraphChildGraphNodeGetGraph", "cuGraphClone", "cuGraphDestroy", "cuGraphGetEdges",
                 "cuGraphAddDependencies", "cuGraphRemoveDependencies", "cuGraphAddEventRecordNode", "cuGraphMemcpyNodeGetParams",
                 "cuGraphMemsetNodeGetParams", "cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuEventDestroy_v2", "cuStreamWaitEvent",
                 "cuFuncGetAttribute", "cuKernelGetAttribute", "cuDeviceGetAttribute", "cuStreamQuery"}
HERE = os.path.dirname(os.path.abspath(__file__))


def build(clang, out):
    """The program, and the names of its sections."""
    program = os.path.join(out, "rules")
    subprocess.run([clang, "-std=c++17", "-O2", "-o", program, os.path.join(HERE, "rules.cu"), "-lcublas", "-lcuda"], check=True)
    return program


def sections():
    with open(os.path.join(HERE, "rules.cu"), encoding="utf-8") as file:
        table = file.read().split("kSections[] = {{")[1].split("}};")[0]
    return [part.split('"')[1] for part in table.split("{") if '"' in part]


def read(path):
    """Kind -> name -> numbers, of a file of counts (docs/softgpu-tests.md) or of the program's own."""
    out = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as file:
        for line in file:
            kind, *words = line.split()
            if kind == "unrun" and words[0] == "kernel":
                words = [" ".join(words[:2]), *words[2:]]
            out[kind][words[0]] = [int(number) for number in words[1:]]
    return out


def unlike_executor(own, ran, not_compared):
    """What the program counted itself against what the executor says it called and ran, one line each. Calls that somebody else makes,
    too, are not compared."""
    problems = []
    kinds = ("call", "did", "kernel") if own["call"] else ()  # a library's calls are not the program's to count
    for kind in kinds:
        for name in sorted({*own[kind], *ran[kind]} - not_compared):
            if kind == "call" and name not in own[kind] or name in ("event", "host_function"):
                continue
            mine, theirs = own[kind].get(name, [0, 0]), ran[kind].get(name, [0, 0])
            if mine != theirs:
                problems.append(f"{kind} {name}: {mine} by the program, {theirs} by the executor")
    return problems
