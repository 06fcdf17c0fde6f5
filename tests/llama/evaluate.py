#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every case of test-backend-ops but flash attention on a whole build, in parts that are kept: whoever stops it goes on later.

The list of cases is the program's own (`support`). Expected to run is whatever this build reports as supported, and whatever llama.cpp's
sources mark as supported by CUDA (docs/ops/CUDA.csv); a case that is marked and that this build refuses counts as refused."""
import collections
import csv
import hashlib
import io
import os
import re
import resource
import subprocess

from builds import CACHE, build_folder, command, run, say, sha256, sources, toolkit
import kit

LEFT_OUT = "FLASH_ATTN_EXT"
CASES_OF_PART = 400
LETTERS_OF_PART = 100_000  # of one argument; Linux takes 131,072
MINUTES = 30
MINUTES_OF_CASE = 20
VERDICT = re.compile(r"^(.*?)((?:[A-Z0-9_]+)\(.*\)): (OK|FAIL|not supported \[.*\]) *$")


def rows(text):
    return [(f"{row['op_name']}({row['op_params']})", row["error_message"] == "yes") for row in csv.DictReader(io.StringIO(text))
            if row["op_name"] != LEFT_OUT]


def operator(case):
    return case.partition("(")[0]


def parameters(case):
    return frozenset(re.findall(r"(\w+=(?:\[[^\]]*\]|[^,\[]*))(?:,|$)", case.partition("(")[2][:-1]))


def marks_of(cases, marked):
    """(cases that are marked, marks without a case). The marks are of an older version, whose cases had fewer parameters: a mark stands for each
    case that has all of its parameters."""
    found, used = marked & set(cases), set(marked & set(cases))
    older = collections.defaultdict(list)
    for mark in sorted(marked - found):
        older[operator(mark)].append((mark, parameters(mark)))
    for case in cases:
        own = parameters(case) if operator(case) in older else frozenset()
        for mark, wanted in older.get(operator(case), ()):
            if wanted <= own:
                found.add(case)
                used.add(mark)
    return found, marked - used


def cases_of(variant):
    """Name -> is it reported as supported; in the program's order."""
    done = run(variant, "test-backend-ops", "support", "-b", "CUDA0", "--output", "csv")
    if done.returncode != 0:
        raise kit.Wrong(f"list of cases: {done.stderr[-2000:]}")
    found = rows(done.stdout[done.stdout.index('"backend_name"'):] if '"backend_name"' in done.stdout else done.stdout)
    if not found:
        raise kit.Wrong("test-backend-ops lists no cases")
    return dict(found)


def parts_of(cases):
    """(name of the part, its cases): each within the bounds, and of one operator."""
    parts = []
    for name, of_operator in groups(cases):
        begun, letters = [], 0
        for case in of_operator:
            if begun and (len(begun) == CASES_OF_PART or letters + len(case) > LETTERS_OF_PART):
                parts.append((f"{name}-{len(parts)}", begun))
                begun, letters = [], 0
            begun.append(case)
            letters += len(case) + 1
        parts.append((f"{name}-{len(parts)}", begun))
    return parts


def groups(cases):
    by_operator = collections.defaultdict(list)
    for case in cases:
        by_operator[operator(case)].append(case)
    return by_operator.items()


def verdicts_of(text):
    """Case -> (OK, FAIL or why not, what was said before it). A case that is listed twice fails if one of the two fails."""
    found, said = {}, ""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        match = VERDICT.match(line)
        if match is None:
            said = line.strip()
            continue
        before, case, verdict = match.groups()
        if found.get(case, ("",))[0] != "FAIL":
            found[case] = (verdict, before.strip() or (said if verdict == "FAIL" else ""))
        said = ""
    return found


def judged(variant, wanted):
    """Runs the cases. One that ends the program is noted as such, and the others run without it."""
    results, left = {}, list(wanted)
    while left:
        try:
            done = run(variant, "test-backend-ops", "test", "-b", "CUDA0", "-o", ",".join(left), timeout=60 * MINUTES_OF_CASE)
            out, end = done.stdout, f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired as expired:
            out, end = (expired.stdout or b"").decode(errors="replace"), f"no end within {MINUTES_OF_CASE} minutes"
        results.update(verdicts_of(out))
        missing = [case for case in left if case not in results]
        if missing:  # it was at the first of them
            results[missing[0]] = ("DIED", end)
        left = missing[1:]
    return results


def fingerprint(variant):
    """What the results depend on: the programs, and the libraries of the software GPU."""
    folder = os.path.dirname(toolkit())
    paths = [os.path.join(build_folder(variant), "bin", name) for name in ("test-backend-ops", "libggml-cuda.so")]
    paths += [os.path.join(folder, name) for name in ("libcuda.so.1", "libcudart.so.12", "libcublas.so.12")]
    return hashlib.sha256("".join(map(sha256, paths)).encode()).hexdigest()[:12]


def evaluate(variant, names, report):
    source, _ = sources()
    command(variant, "test-backend-ops")  # is it there?
    with open(os.path.join(source, "docs/ops/CUDA.csv"), encoding="utf-8") as file:
        marked = {case for case, yes in rows(file.read()) if yes}
    cases = cases_of(variant)
    supported = [case for case, yes in cases.items() if yes and (not names or operator(case) in names)]
    parts = parts_of(supported)
    kept = kit.Parts(os.path.join(CACHE, "evaluation"), commit=f"{variant}-{fingerprint(variant)}")

    def plan():
        for number, (name, wanted) in enumerate(parts):
            # Named by its cases: whatever list of operators was asked for, the same part is found again.
            key = [name.rpartition("-")[0], hashlib.sha256(",".join(wanted).encode()).hexdigest()[:12]]
            yield kit.Part(key, f"{number + 1} of {len(parts)} parts: {operator(wanted[0])}, {len(wanted)} cases",
                           lambda wanted=wanted: part(variant, wanted))
    if not kept.run(plan(), report, minutes=MINUTES):
        return 75
    results, seconds = {}, collections.Counter()
    for one in plan():
        done = kept.result(one.key)
        results.update(done["results"])
        seconds[one.key[0]] += done["processor_seconds"]
    report.judge("table", table({case: yes for case, yes in cases.items() if not names or operator(case) in names},
                                {mark for mark in marked if not names or operator(mark) in names}, results, seconds))
    return None


def part(variant, wanted):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = judged(variant, wanted)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"results": results, "processor_seconds": round(used, 1)}


def outcome(case, supported, marked, results):
    if not supported:
        return "refused" if case in marked else "not of CUDA"
    verdict = results.get(case, ("DIED", "no result"))[0]
    return {"OK": "passed", "FAIL": "failed", "DIED": "died"}.get(verdict, "no judge")


def table(cases, marked, results, seconds):
    """By operator, and each case that did not pass by name. 0: all that is expected to run passed."""
    columns = ("passed", "failed", "died", "refused", "no judge", "not of CUDA")
    say("| operator | " + " | ".join(columns) + " | processor s |\n|---|" + "---|" * (len(columns) + 1))
    whole, missed, everything = collections.Counter(), [], len(marked)
    marked, without_case = marks_of(cases, marked)
    for name, of_operator in groups(cases):
        counts = collections.Counter()
        for case in of_operator:
            counts[outcome(case, cases[case], marked, results)] += 1
        missed += [case for case in of_operator if outcome(case, cases[case], marked, results) in ("failed", "died", "refused")]
        whole.update(counts)
        say(f"| {name} | " + " | ".join(str(counts[column]) for column in columns) + f" | {seconds[name]:.0f} |")
    say("| all | " + " | ".join(str(whole[column]) for column in columns) + f" | {sum(seconds.values()):.0f} |")
    for case in missed:
        say(f"{outcome(case, cases[case], marked, results)}: {case} {results.get(case, ('', ''))[1]}")
    say(f"marked as supported in CUDA.csv, but no case of this version: {len(without_case)} of {everything}")
    return 1 if missed or not whole["passed"] else 0
