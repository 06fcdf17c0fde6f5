#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What each module costs to compile: compile_cost.py LOG COMPILER WORD... | --check LOG TABLE [UNIT] | --write LOG TABLE [UNIT]

As a compiler launcher (CMAKE_CXX_COMPILER_LAUNCHER) it runs the compiler and adds a line to LOG: target, processor time, peak memory.
--check compares a log of a cold build with TABLE (tab-separated: module, units, reason). A unit is the processor time of this
machine's compiler for a fixed source, the least of five (or UNIT seconds), so the table holds for other machines. A module that grew by 10 % and by 2
units is a problem: make it smaller, or write the new figure into its row with the reason. --write makes the table anew and keeps the reasons.
"""
import collections
import os
import re
import resource
import subprocess
import sys
import tempfile

GROWTH, GROWTH_UNITS = 1.10, 2.0  # a tenth is what users notice at last; below two units it is noise of the machine
REFERENCE = "#include <map>\n#include <string>\n#include <vector>\n#include <functional>\n#include <algorithm>\n" + "".join(
    f"int f{i}(std::vector<std::string>& v) {{ std::map<std::string, std::function<int(int)>> m; std::sort(v.begin(), v.end());"
    f" for (const auto& s : v) m[s + \"{i}\"] = [](int x) {{ return x + {i}; }}; int n = 0; for (auto& [k, g] : m) n += g({i}); return n; }}\n"
    for i in range(4))
REFERENCE_RUNS = 5
COMPILE = ["c++", "-std=c++20", "-O2", "-g1", "-c", "-x", "c++", "-", "-o"]
TARGET = re.compile(r"CMakeFiles/([^/]+)\.dir/")


def used():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def launch(log, command):
    status = subprocess.run(command, check=False).returncode
    output = next((command[i + 1] for i, word in enumerate(command[:-1]) if word == "-o"), "")
    target = TARGET.search(output)
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with open(log, "a", encoding="utf-8") as file:  # one write of one line: whole, whoever writes beside it
        file.write(f"{target.group(1) if target else 'none'}\t{used():.2f}\t{peak_kib}\t{output}\n")
    return status if status >= 0 else 1


def reference_s():
    """Processor time of one compile of the fixed source."""
    times = []
    with tempfile.TemporaryDirectory(prefix="kansoku-reference-") as folder:
        for _ in range(REFERENCE_RUNS):
            before = used()
            subprocess.run([*COMPILE, os.path.join(folder, "x.o")], input=REFERENCE, text=True, check=True)
            times.append(used() - before)
    return min(times)  # whatever else runs only adds


def read_log(path):
    """({target: seconds}, (KiB, output) of the largest compiler)."""
    seconds, largest = collections.Counter(), (0, "")
    with open(path, encoding="utf-8") as file:
        for line in file:
            target, used_s, peak_kib, output = line.rstrip("\n").split("\t")
            if target.startswith("cmTC_"):  # CMake tries the compiler
                continue
            seconds[target] += float(used_s)
            largest = max(largest, (int(peak_kib), output))
    return seconds, largest


def read_table(path):
    """{module: (units, reason)}."""
    with open(path, encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#"))
        return {row[0]: (float(row[1]), row[2] if len(row) > 2 else "") for row in rows}


def compare(seconds, table, unit_s):
    """A line for each module that grew or is new."""
    problems = []
    for module, used_s in sorted(seconds.items()):
        units = used_s / unit_s
        if module not in table:
            problems.append(f"{module}: {units:.1f} units, and no row in the table")
        elif units > table[module][0] * GROWTH and units > table[module][0] + GROWTH_UNITS:
            problems.append(f"{module}: {units:.1f} units, the table has {table[module][0]:.1f}")
    return problems + [f"{module}: a row, and no module" for module in sorted(set(table) - set(seconds))]


def main():
    if len(sys.argv) < 4 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    if sys.argv[1] not in ("--check", "--write"):
        return launch(sys.argv[1], sys.argv[2:])
    seconds, (peak_kib, output) = read_log(sys.argv[2])
    unit_s, path = float(sys.argv[4]) if len(sys.argv) > 4 else reference_s(), sys.argv[3]
    print(f"{sum(seconds.values()):.0f} s of processor time in {len(seconds)} targets, a unit is {unit_s:.3f} s; largest compiler "
          f"{peak_kib / (1 << 20):.2f} GiB: {output}")
    if sys.argv[1] == "--write":
        known = read_table(path) if os.path.exists(path) else {}
        with open(path, "w", encoding="utf-8") as file:
            file.write("# module, units of processor time of a cold build (tools/compile_cost.py), reason of the last change\n")
            for module, used_s in sorted(seconds.items()):
                file.write(f"{module}\t{used_s / unit_s:.1f}\t{known.get(module, (0, 'first measured'))[1]}\n")
        return 0
    problems = compare(seconds, read_table(path), unit_s)
    print("\n".join(problems + [f"{len(problems)} of {len(seconds)} modules cost more to compile than their rows say"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
