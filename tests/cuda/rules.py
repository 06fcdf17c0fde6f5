# SPDX-License-Identifier: Apache-2.0
"""The program rules.cu: what it does in known numbers, and whether the executor of the software device says the same."""
import os

import kit

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
    return kit.compile_for_device(os.environ["KANSOKU"], os.path.join(out, "rules"), "-std=c++17", "-O2", os.path.join(HERE, "rules.cu"), "-lcublas",
                                  "-lcuda", clang=clang)


def sections():
    with open(os.path.join(HERE, "rules.cu"), encoding="utf-8") as file:
        table = file.read().split("kSections[] = {{")[1].split("}};")[0]
    return [part.split('"')[1] for part in table.split("{") if '"' in part]


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
