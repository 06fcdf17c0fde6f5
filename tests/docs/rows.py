#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""rows.py BUILD: each row of README's table has tests in `make test` that show it (rows.tsv), and ctest has them.

Tests that only `make test-all` runs (label `all`) do not count.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))
import ctest_suite  # noqa: E402


def rows_of_readme():
    """The first cells of the table under "How far it is"."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        text = file.read()
    table = text[text.index("| question | answer |"):]
    return [re.match(r"\| (.*?) \|", line).group(1) for line in table.splitlines()[2:] if line.startswith("|")]


def shown_by():
    with open(os.path.join(HERE, "rows.tsv"), encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#"))
        return {row[0]: row[1].split() for row in rows}


def main():
    known = {entry["name"] for entry in ctest_suite.entries(sys.argv[1])}
    wanted, rows = shown_by(), rows_of_readme()
    problems = [f"README has the row \"{row}\", and rows.tsv names no test for it" for row in rows if not wanted.get(row)]
    problems += [f"rows.tsv has the row \"{row}\", and README has not" for row in wanted if row not in rows]
    problems += [f"{row}: {name} is no test of make test" for row, names in wanted.items() for name in names if name not in known | {"page"}]
    print("\n".join(problems + [f"{len(rows)} rows, {len(problems)} problems"]))
    return 1 if problems or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
