#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores `kansoku demo` against planted faults and clean runs, and prints the tables of docs/measurements/evaluation.md.

    evaluate.py hits  [--seconds 15] [--shares 0.1,0.2,0.5,1.0] [--fault input]   each rank in turn, each size
    evaluate.py kinds [--seconds 15] [--share 0.5]                                 each kind of fault once
    evaluate.py clean [--seconds 15] [--runs 10]                                   demo --clean
    evaluate.py plain [--seconds 60] [--runs 10]                                   a plain run recorded and diagnosed
Needs root, eBPF and Debian's python3-torch. --kansoku names the program (build/kansoku).
"""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

KINDS = ["input", "input_cpu", "forward", "optimizer", "worker", "checkpoint"]


def run_demo(options, arguments):
    with tempfile.TemporaryDirectory(prefix="kansoku-eval-") as folder:
        command = [options.kansoku, "demo", "--json", "--seconds", str(options.seconds), "-o", folder] + arguments
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds * 4 + 120, check=False)
        try:
            return done.returncode, json.loads(done.stdout)
        except json.JSONDecodeError:
            print(done.stderr, file=sys.stderr)
            return done.returncode, {"findings": [], "steps": {}, "broken": True}


def described(diagnosis):
    if diagnosis.get("broken"):
        return "no answer"
    if not diagnosis["findings"]:
        return "nothing found"
    top = diagnosis["findings"][0]
    return f"rank {top['ranks']} {top['kind']} {top['function']} {kit.cost(top)} {kit.basis(top)}"


def hits(options):
    shares = [float(text) for text in options.shares.split(",")]
    right = {share: 0 for share in shares}
    print("| share of a step | rank | right | named |\n|---|---|---|---|")
    for share in shares:
        for rank in range(4):
            status, diagnosis = run_demo(options, ["--fault", options.fault, "--rank", str(rank), "--share", str(share)])
            right[share] += status == 0
            print(f"| {share:.0%} | {rank} | {'yes' if status == 0 else 'no'} | {described(diagnosis)} |", flush=True)
    for share in shares:
        print(f"eval hits fault={options.fault} share={share} right={right[share]} of=4")
    from_20 = [share for share in shares if share >= 0.2]
    total = sum(right[share] for share in from_20)
    print(f"eval hits_from_20_percent right={total} of={4 * len(from_20)}")
    return total >= 0.9 * 4 * len(from_20)


def kinds(options):
    print("| fault | right | named |\n|---|---|---|")
    right = 0
    for kind in KINDS:
        status, diagnosis = run_demo(options, ["--fault", kind, "--rank", "1", "--share", str(options.share)])
        right += status == 0
        print(f"| {kind} | {'yes' if status == 0 else 'no'} | {described(diagnosis)} |", flush=True)
    print(f"eval kinds right={right} of={len(KINDS)}")
    return right == len(KINDS)


def clean(options):
    right = 0
    for _ in range(options.runs):
        status, diagnosis = run_demo(options, ["--clean"])
        right += status == 0
        print(f"clean: {described(diagnosis)}, median step {diagnosis['steps'].get('median_ms', 0):.1f} ms", flush=True)
    print(f"eval clean right={right} of={options.runs} seconds={options.seconds}")
    return right == options.runs


def plain(options):
    right = 0
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="kansoku-eval-") as folder:
            trace = os.path.join(folder, "run.pftrace")
            environment = dict(os.environ, SECONDS=str(options.seconds), RANKS="4", FAULT="none")
            kit.record(options.kansoku, trace, "-q", of=[os.path.join(kit.ROOT, "examples/ddp/launch.sh")], env=environment,
                       timeout=options.seconds * 4 + 120)
            done = subprocess.run([options.kansoku, "diagnose", "--json", trace], capture_output=True, text=True, check=False)
            diagnosis = json.loads(done.stdout) if done.stdout else {"broken": True, "findings": [], "steps": {}}
            right += done.returncode == 0
            print(f"plain: {described(diagnosis)}, {diagnosis['steps'].get('count', 0)} steps", flush=True)
    print(f"eval plain right={right} of={options.runs} seconds={options.seconds}")
    return right == options.runs


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("what", choices=["hits", "kinds", "clean", "plain"])
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--shares", default="0.1,0.2,0.5,1.0")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--fault", default="input")
    options = parser.parse_args()
    options.seconds = options.seconds or (60 if options.what == "plain" else 15)
    started = time.monotonic()
    is_good = {"hits": hits, "kinds": kinds, "clean": clean, "plain": plain}[options.what](options)
    print(f"eval took_s={time.monotonic() - started:.0f}")
    report.judge(options.what, 0 if is_good else ["too many are wrong"])


if __name__ == "__main__":
    kit.run(main)
