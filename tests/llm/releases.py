#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""releases.py [VERSION...|few|all] [--table]: `kansoku llm record` on releases of llama.cpp as npm's @node-llama-cpp/linux-x64 ships them, against what
a program that generates with them says.

A figure is exact, or unknown with a reason in the report; anything else is wrong. Decode calls and tokens have to be exact. Of the operators the
products are compared: so many a layer, by arithmetic on the model.

  few [default]   one release of each kind: no function for micro-batches, a hidden argument, an older layout, the newest
  all             all that are listed here       --table   the result in Markdown

$KANSOKU is the program [build/kansoku, or else build/release/kansoku]. Needs root, npm and a C++ compiler. Exit status 1 if one is wrong, else 77 if
one cannot be had here."""
import argparse
import glob
import json
import os
import subprocess
import sys
import tarfile
import tempfile

import exact
import models
from builds import CACHE, Unavailable, Wrong, checked, say
from exact import difference, number

RELEASES = ("3.6.0", "3.7.0", "3.9.0", "3.10.0", "3.12.4", "3.13.0", "3.14.5", "3.15.1", "3.16.2", "3.17.1", "3.18.1", "3.19.1", "3.20.0", "3.21.1",
            "3.22.0", "3.22.1")
FEW = ("3.6.0", "3.10.0", "3.14.5", "3.22.1")
NEWEST = RELEASES[-1]
TOKENS, PROMPT, BATCH, UBATCH = 40, 70, 32, 16
# Of a layer; where attention is no operator of its own, more; those behind the rows that are chosen for the result.
LAYERS, PRODUCTS, PRODUCTS_OF_ATTENTION, PRODUCTS_BEHIND = 2, 7, 2, 4
FIGURES = ("decode", "micro_batches", "graphs", "operators")


def libraries(release):
    folder = os.path.join(CACHE, "releases", release)
    if not os.path.isdir(folder):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as part:
            try:
                checked(["npm", "pack", "--silent", f"@node-llama-cpp/linux-x64@{release}"], cwd=part)
            except (Wrong, FileNotFoundError) as error:
                raise Unavailable(f"{release} cannot be fetched: {str(error).splitlines()[0]}") from error
            with tarfile.open(glob.glob(os.path.join(part, "*.tgz"))[0]) as archive:
                archive.extractall(os.path.join(part, "out"))
            os.rename(os.path.join(part, "out"), folder)
    return os.path.join(folder, "package", "bins", "linux-x64")


def generated(release, out):
    """What the program said of itself while it was recorded."""
    program = models.program(os.path.join(models.HERE, "any_build.cc"), "npm")
    command = [program, libraries(release), models.model("toy-F32"), "--tokens", str(TOKENS), "--prompt-tokens", str(PROMPT), "--batch", str(BATCH),
               "--ubatch", str(UBATCH)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        text = exact.recorded(driver, out, 300)
    return json.loads(text.splitlines()[-1])


def products(process, parts):
    """MUL_MAT of all phases, seen and expected: the last layer of a prompt's micro-batch that wants no result leaves its last products out."""
    seen = sum(number(row["count"], "count") for row in process["operators"] if row["op"] == "MUL_MAT")
    a_layer = PRODUCTS + (0 if any(row["op"] == "FLASH_ATTN_EXT" for row in process["operators"]) else PRODUCTS_OF_ATTENTION)
    without_result = -(-PROMPT // UBATCH) - 1
    return seen, parts * (LAYERS * a_layer + 1) - without_result * PRODUCTS_BEHIND


def differences(report, said):
    """Of a figure that is known, from what the program said."""
    if len(report["processes"]) != 1:
        return [f"{len(report['processes'])} processes, not 1"]
    process = report["processes"][0]
    unknown = {one["figure"] for one in process["unknown"]}
    wrong = [f"{figure}: unknown without a reason" for figure in FIGURES if process[figure] is None and figure not in unknown]
    wrong += [f"lost {name}: {count}" for name, count in report["losses"].items() if name != "llm_not_covered"]
    if "decode" in unknown:
        return [*wrong, "decode calls are not known"]
    wrong += difference("decode calls", number(process["decode"]["calls"], "calls"), said["calls"])
    wrong += difference("decode tokens", number(process["decode"]["tokens"], "tokens"), said["tokens"])
    if "micro_batches" not in unknown:
        wrong += difference("micro-batches", number(process["micro_batches"]["count"], "count"), said["micro_batches"])
        wrong += difference("tokens of micro-batches", number(process["micro_batches"]["tokens"], "tokens"), said["tokens"])
        wrong += difference("generated tokens", number(process["micro_batches"]["generated_tokens"], "generated"), TOKENS - 1)
    if "graphs" not in unknown:
        wrong += difference("graphs", number(process["graphs"]["count"], "graphs"), said["micro_batches"])
    if "operators" not in unknown:
        wrong += difference("products", *products(process, said["micro_batches"]))
    return wrong


def compared(release):
    """The differences, and a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recording")
        said = generated(release, path)
        report = exact.report_of(path, "--no-peaks")
    wrong = differences(report, said)
    process = report["processes"][0] if report["processes"] else {"unknown": [], "ggml": ""}
    unknown = {one["figure"]: one["reason"] for one in process["unknown"]}
    if release == NEWEST and set(unknown) & set(FIGURES):
        wrong.append("of the newest release everything is read")
    cells = [f"unknown: {unknown[figure]}" if figure in unknown else "exact" for figure in FIGURES]
    say(f"{release}: {'WRONG ' + '; '.join(wrong) if wrong else 'right'} (ggml {process['ggml'] or 'tells no version'}; "
        + ", ".join(f"{figure} {cell}" for figure, cell in zip(FIGURES, cells)) + ")")
    return wrong, f"| {release} | {process['ggml'] or '-'} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["few"], metavar="VERSION|few|all")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    chosen = [release for name in options.names for release in {"few": FEW, "all": RELEASES}.get(name, [name])]
    if os.geteuid() != 0:
        raise Unavailable("needs root")
    rows = []

    def differences_of(release):
        wrong, row = compared(release)
        rows.append(row)
        return wrong

    wrong = exact.judged(chosen, differences_of)
    if options.table:
        say("| release | ggml | decode calls, tokens | micro-batches | graphs | operators |\n|---|---|---|---|---|---|\n" + "\n".join(rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as reason:
        say(f"not here: {reason}")
        sys.exit(exact.SKIPPED)
