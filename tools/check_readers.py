#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_readers.py [--root DIR]: docs/formats/readers.md names every importer, and tests that exist.

Each header of the folders below has a row, each row's header exists, and its last three cells (unknown version, missing field, damaged item) hold tests
as `Suite.Name`, or `-` and a reason."""
import argparse
import os
import re
import sys

import source_text

PAGE = "docs/formats/readers.md"
FOLDERS = ("src/trace/import/", "src/simulate/import/")
TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)")
CELLS = 6


def problems_of(root):
    files = list(source_text.tree_files(root))
    readers = [path for path in files if path.startswith(FOLDERS) and path.endswith(".h") and "_for_test" not in path and "/internal/" not in path]
    if not os.path.exists(os.path.join(root, PAGE)):
        yield from ([f"{PAGE}: no such page"] if readers else [])
        return
    tests = {f"{suite}.{name}" for path in files if path.endswith("_test.cc") for suite, name in TEST.findall(source_text.read(root, path))}
    listed = set()
    for number, line in enumerate(source_text.read(root, PAGE).split("\n"), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        header = re.fullmatch(r"`(src/[\w/]+\.h)`", cells[0])
        if not header:
            continue
        listed.add(header[1])
        if len(cells) != CELLS:
            yield f"{PAGE}:{number}: {len(cells)} cells, not {CELLS}"
            continue
        if header[1] not in files:
            yield f"{PAGE}:{number}: no file {header[1]}"
        for cell in cells[3:]:
            named = re.findall(r"`(\w+\.\w+)`", cell)
            if not named and not re.match(r"- \w", cell):
                yield f"{PAGE}:{number}: `{cell}` names no test and gives no reason"
            yield from (f"{PAGE}:{number}: no test {name}" for name in named if name not in tests)
    yield from (f"{PAGE}: {path} is not listed" for path in readers if path not in listed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    options = parser.parse_args()
    return source_text.report("readers", list(problems_of(options.root)), "readers and their tests")


if __name__ == "__main__":
    sys.exit(main())
