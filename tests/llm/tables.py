#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tables.py: four questions about a generation, answered by `kansoku llm` on this machine, as tables in Markdown.

Which operators take the time of prompts and of decoding; how that grows with the context; what a second process does to it; which experts follow each
other. Each table stands below the command that made its recordings. Needs root and the build cpu-openmp (tests/llama/run.py build cpu-openmp)."""
import contextlib
import os
import subprocess
import tempfile
import time

import exact
import faults
import models
import kit


@contextlib.contextmanager
def generation(*options, model="mid", waits=False):
    words = [models.driver("openmp"), "--model", models.model(model), "--tokens", "1000000", *options, *(["--wait"] if waits else [])]
    with kit.Job(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=models.settings("openmp")) as job:
        if waits:
            job.stdout.readline()
        yield job


def report(job, folder, seconds, begin=None):
    path = os.path.join(folder, "run.pftrace")
    words = [exact.kansoku(), "llm", "record", "-p", str(job.pid), "--budget", "none", "--duration", f"{seconds}s", "--force", "-o", path]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as recorder:
        for line in recorder.stderr:
            if line.startswith("recording") and begin:
                begin()
                begin = None
    return exact.report_of(path)["processes"][0]


def rows(process, phase):
    return {row["op"]: row for row in process["operators"] if row["phase"] == phase}


def heading(title, command):
    print(f"\n### {title}\n\n    {command}\n")


def dominant(folder):
    heading("Which operators take the time", "driver --model mid --prompt-tokens 448 --context 512 --wait & kansoku llm record -p $! --budget none -o run.pftrace")
    with generation("--prompt-tokens", "448", "--context", "512", waits=True) as job:
        def begin():
            job.stdin.write("\n")
            job.stdin.flush()
        process = report(job, folder, 6, begin)
    prefill, decode = rows(process, "prefill"), rows(process, "decode")
    print("| operator | prompt: share | GFLOP/s | GB/s | decoding: share | GFLOP/s | GB/s |\n|---|---|---|---|---|---|---|")
    for op in sorted(decode, key=lambda op: -decode[op]["time_ns"]):
        cells = []
        for of in (prefill, decode):
            row = of.get(op)
            cells += [f"{100 * row['share']:.1f} %", f"{row['flops_per_second'] / 1e9:.2f}", f"{row['bytes_per_second'] / 1e9:.2f}"] if row else ["", "", ""]
        print(f"| {op} | {' | '.join(cells)} |")


def growth(folder):
    heading("Growth with the context", "driver --model mid --context 2048 & kansoku llm record -p $! --budget none --duration 1s -o run.pftrace, again and again")
    print("| cells attended | ms a token | MUL_MAT, us | FLASH_ATTN_EXT, us | share of attention |\n|---|---|---|---|---|")
    with generation("--context", "2048") as job:
        seen = 0
        for _ in range(40):
            process = report(job, folder, 1)
            decode, cells = rows(process, "decode"), process["cache"]["attended"]
            if cells > seen:
                attention, product = decode["FLASH_ATTN_EXT"], decode["MUL_MAT"]
                print(f"| {cells} | {process['speed']['decode_ms_p50']:.1f} | {product['time_ns'] / product['count'] / 1e3:.1f} | "
                      f"{attention['time_ns'] / attention['count'] / 1e3:.1f} | {100 * attention['share']:.1f} % |", flush=True)
            if cells < seen or cells >= 2048:
                break
            seen = cells


def interference(folder):
    heading("A second process on the memory", "taskset -c 0 driver --model mid & taskset -c 1 ./stream & kansoku llm record -p PID --duration 3s -o run.pftrace")
    stream = faults.compiled(folder, "stream", faults.STREAM)
    print("| | ms a token | MUL_MAT, us | GB/s | ROPE, us |\n|---|---|---|---|---|")
    with generation("--context", "256", "--prompt-tokens", "128") as job:
        for tid in faults.tids(job.pid):
            os.sched_setaffinity(tid, {0})
        time.sleep(1)  # until it decodes
        for name in ("alone", "beside it"):
            with kit.Job(["taskset", "-c", "1", stream]) if name != "alone" else contextlib.nullcontext():
                process = report(job, folder, 3)
            decode = rows(process, "decode")
            print(f"| {name} | {process['speed']['decode_ms_p50']:.1f} | {decode['MUL_MAT']['time_ns'] / decode['MUL_MAT']['count'] / 1e3:.1f} | "
                  f"{decode['MUL_MAT']['bytes_per_second'] / 1e9:.1f} | {decode['ROPE']['time_ns'] / decode['ROPE']['count'] / 1e3:.2f} |")


def experts(folder):
    heading("Locality of experts", "driver --model moe-F32 & kansoku llm record -p $! --budget none --duration 2s -o run.pftrace")
    with generation(model="moe-F32") as job:
        process = report(job, folder, 2)
    print("| layer | tokens | uses by expert | used by the token before, too |\n|---|---|---|---|")
    for row in process["experts"]:
        total = sum(row["counts"])
        print(f"| {row['name']} | {row['tokens']} | {', '.join(f'{100 * count / total:.0f} %' for count in row['counts'])} | {100 * row['repeated']:.0f} % |")


def main(report):
    kit.need_root()
    with tempfile.TemporaryDirectory() as folder:
        for table in (dominant, growth, interference, experts):
            report.part(table.__name__, table, folder)


if __name__ == "__main__":
    kit.run(main)
