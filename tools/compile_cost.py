#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What each module costs to compile: compile_cost.py LOG COMPILER WORD... | --check LOG TABLE | --write LOG TABLE

As a compiler launcher (CMAKE_CXX_COMPILER_LAUNCHER) it runs g++ and adds a line to LOG: target, processor time, MB that the compiler took
from its own heap in all, peak memory. --check compares a log of a cold build with TABLE (tab-separated: module, MB, reason). Two builds of one
tree on one machine took the same MB, while their processor time differed by half in a module, in units of one fixed source's too: so
the MB say who grew, and the time is shown. A module that grew by 10 % and by 20 MB is a problem: make it smaller, or write the new
figure into its row with the reason. --write makes the table anew and keeps the reasons. The figures hold for one version of g++.
"""
import collections
import os
import re
import resource
import subprocess
import sys

GROWTH, GROWTH_MB = 1.10, 20.0  # a tenth is what users notice at last; an object file alone takes some 2 MB, a header of the library 20
REPORT = re.compile(r"^\s*Time variable\b.*?^\s*TOTAL\s*:[^\n]*?([\d.]+)([kMG])\b[^\n]*\n?", re.M | re.S)
MB = {"k": 1 / 1024, "M": 1, "G": 1024}
TARGET = re.compile(r"CMakeFiles/([^/]+)\.dir/")


def used():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def launch(log, command):
    done = subprocess.run([command[0], "-ftime-report", *command[1:]], stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    output = next((command[i + 1] for i, word in enumerate(command[:-1]) if word == "-o"), "")
    target = TARGET.search(output)
    allocated = sum(float(number) * MB[unit] for number, unit in REPORT.findall(done.stderr))
    sys.stderr.write(REPORT.sub("", done.stderr).lstrip("\n"))
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with open(log, "a", encoding="utf-8") as file:  # one write of one line: whole, whoever writes beside it
        file.write(f"{target.group(1) if target else 'none'}\t{used():.2f}\t{allocated:.1f}\t{peak_kib}\t{output}\n")
    return done.returncode if done.returncode >= 0 else 1


def read_log(path):
    """({target: MB}, seconds, (KiB, output) of the largest compiler)."""
    allocated, seconds, largest = collections.Counter(), 0.0, (0, "")
    with open(path, encoding="utf-8") as file:
        for line in file:
            target, used_s, took_mb, peak_kib, output = line.rstrip("\n").split("\t")
            if target.startswith("cmTC_"):  # CMake tries the compiler
                continue
            allocated[target] += float(took_mb)
            seconds += float(used_s)
            largest = max(largest, (int(peak_kib), output))
    return allocated, seconds, largest


def read_table(path):
    """{module: (MB, reason)}."""
    with open(path, encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#"))
        return {row[0]: (float(row[1]), row[2] if len(row) > 2 else "") for row in rows}


def compare(allocated, table):
    """A line for each module that grew or is new."""
    problems = []
    for module, took_mb in sorted(allocated.items()):
        if module not in table:
            problems.append(f"{module}: {took_mb:.0f} MB, and no row in the table")
        elif took_mb > table[module][0] * GROWTH and took_mb > table[module][0] + GROWTH_MB:
            problems.append(f"{module}: {took_mb:.0f} MB, the table has {table[module][0]:.0f}")
    return problems + [f"{module}: a row, and no module" for module in sorted(set(table) - set(allocated))]


def main():
    if len(sys.argv) < 4 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    if sys.argv[1] not in ("--check", "--write"):
        return launch(sys.argv[1], sys.argv[2:])
    allocated, seconds, (peak_kib, output) = read_log(sys.argv[2])
    path = sys.argv[3]
    print(f"{sum(allocated.values()) / 1024:.1f} GB and {seconds:.0f} s of processor time in {len(allocated)} targets; largest compiler "
          f"{peak_kib / (1 << 20):.2f} GiB: {output}")
    if not sum(allocated.values()):
        print("the compiler reported no memory: only g++ does (-ftime-report)")
        return 1
    if sys.argv[1] == "--write":
        known = read_table(path) if os.path.exists(path) else {}
        with open(path, "w", encoding="utf-8") as file:
            file.write("# module, MB that the compiler takes in a cold build (tools/compile_cost.py), reason of the last change\n")
            for module, took_mb in sorted(allocated.items()):
                file.write(f"{module}\t{took_mb:.0f}\t{known.get(module, (0, 'first measured'))[1]}\n")
        return 0
    problems = compare(allocated, read_table(path))
    print("\n".join(problems + [f"{len(problems)} of {len(allocated)} modules cost more to compile than their rows say"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
