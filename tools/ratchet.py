#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps functions and files short: ratchet.py [--root FOLDER] [--update [--accept]]

A function has at most 70 lines, from the line of its `{` to that of its `}` (Python: from `def`), a file at most 1,000.
tools/ratchet.json lists those that were over it when the rule came, with their lengths. The check fails on one that passes its
limit and is not listed, and on a listed one that grew. It says which listed ones have shrunk.
  --update            takes smaller lengths into the list and drops those that are within the limit now
  --update --accept   also takes greater ones and new ones: a decision for the review, with its reason in the commit
"""
import argparse
import json
import os
import sys

import functions
import source_text

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 1000
RATCHET = "tools/ratchet.json"
FILE_SUFFIXES = source_text.SOURCE_SUFFIXES + (".py", ".sh", ".js", ".css", ".ts", ".tsx")
FUNCTION_SUFFIXES = source_text.SOURCE_SUFFIXES + (".py",)


class Kind:
    """One budget: its limit, what the list allows, and what the tree has."""

    def __init__(self, word, limit, listed):
        self.word, self.limit, self.listed = word, limit, listed
        self.over, self.places, self.count = {}, {}, 0

    def add(self, name, place, lines):
        self.count += 1
        if lines > self.limit and lines > self.over.get(name, 0):  # overloads of one name share an entry
            self.over[name], self.places[name] = lines, place

    def problems(self):
        for name, lines in sorted(self.over.items()):
            if name not in self.listed:
                yield f"{self.places[name]}: {self.word} {name} has {lines} lines; at most {self.limit}"
            elif lines > self.listed[name]:
                yield f"{self.places[name]}: {self.word} {name} grew from {self.listed[name]} to {lines} lines; it may only shrink"

    def shrunk(self):
        for name, lines in sorted(self.listed.items()):
            now = self.over.get(name)
            if now is None or now < lines:
                yield f"{self.word} {name}: {lines} -> {now or f'within {self.limit}'}"

    def updated(self, accept):
        if accept:
            return dict(sorted(self.over.items()))
        return {name: min(lines, self.over[name]) for name, lines in sorted(self.listed.items()) if name in self.over}


def load(root):
    path = os.path.join(root, RATCHET)
    if not os.path.isfile(path):
        return {}, {}
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    return data.get("functions", {}), data.get("files", {})


def measure(root, by_function, by_file):
    """Fills both budgets; returns what could not be measured."""
    problems = []
    for path in source_text.tree_files(root):
        if not path.endswith(FILE_SUFFIXES) or path.startswith(("tests/corpus/", "tests/data/")):
            continue
        text = source_text.read(root, path)
        by_file.add(path, f"{path}:1", text.count("\n"))
        if not path.endswith(FUNCTION_SUFFIXES):
            continue
        try:
            for function in functions.functions_of(path, text):
                by_function.add(f"{path}:{function.name}", f"{path}:{function.first_line}", function.lines)
        except functions.UnbalancedError as error:
            problems.append(f"{path}: {error}: not measured")
        except SyntaxError as error:
            problems.append(f"{path}:{error.lineno}: {error.msg}: not measured")
    return problems


def update(root, kinds, accept):
    refused = [problem for kind in kinds for problem in kind.problems()]
    with open(os.path.join(root, RATCHET), "w", encoding="utf-8") as file:
        json.dump({kind.word + "s": kind.updated(accept) for kind in kinds}, file, indent=2)
        file.write("\n")
    if refused and not accept:
        return source_text.report("ratchet", refused, "")
    return source_text.report("ratchet", [], f"{RATCHET} written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--accept", action="store_true")
    options = parser.parse_args()
    if options.accept and not options.update:
        parser.error("--accept belongs to --update")
    listed_functions, listed_files = load(options.root)
    by_function = Kind("function", FUNCTION_LINES_MAX, listed_functions)
    by_file = Kind("file", FILE_LINES_MAX, listed_files)
    problems = measure(options.root, by_function, by_file)
    kinds = (by_function, by_file)
    if options.update and not problems:
        return update(options.root, kinds, options.accept)
    problems += [problem for kind in kinds for problem in kind.problems()]
    for kind in kinds:
        for line in kind.shrunk():
            print(f"ratchet: {line}; tools/ratchet.py --update takes it into the list")
    listed = len(listed_functions) + len(listed_files)
    return source_text.report("ratchet", problems, f"{by_function.count} functions, {by_file.count} files, {listed} listed over budget")


if __name__ == "__main__":
    sys.exit(main())
