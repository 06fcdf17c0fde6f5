#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""device.py [--build lean-80] [--mutant]: kernels by token of llama.cpp's CUDA backend against the software device's own count, graphs on and off.

The truth is what the device executed in runs that nobody observed: of 64 tokens, and of 32, so that their difference is what a token takes. A report is
right if all kernels add up to it, each decoding micro-batch has as many, and the kernels were told to the nodes of every timed graph. Exit status 77
where the backend is not built. --mutant leaves one kernel in ten out of the comparison and must turn red."""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "llama"))
import builds  # noqa: E402
import exact  # noqa: E402
import kit  # noqa: E402
import run as llama  # noqa: E402

TOKENS = 64
OFF = {"GGML_CUDA_DISABLE_GRAPHS": "1"}


def executed(build, model, tokens, settings):
    done = builds.run(build, "generate", "text", model, "--tokens", str(tokens), settings=settings)
    if done.returncode != 0:
        raise kit.Wrong(done.stderr[-2000:])
    return int(re.search(r"^launches=(\d+)$", done.stdout, re.M)[1])


def observed(build, model, settings, folder):
    path = os.path.join(folder, "run.pftrace")
    words, environment = builds.command(build, "generate", "text", model, "--tokens", str(TOKENS), settings=settings)
    done = kit.record(exact.kansoku(), path, "-q", "--cuda", "--probes", "llama,ggml-graph", "--force", of=words, env=environment)
    if done.returncode != 0:
        raise kit.Wrong(done.stderr[-2000:])
    return exact.report_of(path)


def compared(name, build, model, settings, mutant):
    most, fewer = executed(build, model, TOKENS, settings), executed(build, model, TOKENS // 2, settings)
    a_token = (most - fewer) // (TOKENS // 2)
    with tempfile.TemporaryDirectory() as folder:
        report = observed(build, model, settings, folder)
    wrong = [f"lost {count} {name}" for name, count in report["losses"].items()]
    device = report["devices"][0] if report["devices"] else {"phases": [], "kernels_outside": 0}
    phases = {phase["phase"]: phase for phase in device["phases"]}
    total = sum(phase["kernels"] for phase in phases.values()) + device["kernels_outside"]
    if mutant:
        total -= total // 10
    if total != most:
        wrong.append(f"{total} kernels, {most} were executed")
    decode = phases.get("decode", {"kernels_least": 0, "kernels_most": 0, "graphs": 0, "placed": 0, "unplaced": 1, "micro_batches": 0})
    if decode["kernels_least"] != a_token or decode["kernels_most"] != a_token:
        wrong.append(f"{decode['kernels_least']} to {decode['kernels_most']} kernels a token, not {a_token}")
    if (decode["graphs"] > 0) != (settings != OFF):
        wrong.append(f"{decode['graphs']} graphs")
    if decode["unplaced"] or not decode["placed"]:
        wrong.append(f"kernels of {decode['unplaced']} splits told to no nodes, of {decode['placed']} told")
    builds.say(f"device {name}: {'WRONG ' + '; '.join(wrong) if wrong else 'exact'} ({most} kernels, {a_token} a token, {decode['micro_batches']} micro-batches, "
               f"{decode['graphs']} graphs)")
    return len(wrong)


def main(report):
    parser = kit.parser(__doc__, False)
    parser.add_argument("--build", default="lean-80")
    parser.add_argument("--mutant", action="store_true")
    options = parser.parse_args()
    kit.need_root()
    model = llama.Models(options.build).make("F32")
    for name, settings in (("graphs off", OFF), ("graphs on", {})):
        report.part(name, compared, name, options.build, model, settings, options.mutant)


if __name__ == "__main__":
    kit.run(main)
