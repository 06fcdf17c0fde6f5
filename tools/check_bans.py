#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tracked files for what the house does not use: check_bans.py [--root FOLDER] [--list]

Bans look at code without comments and literals; the marks and paths also at comments and at every other text file. A line may
be excused where it stands, with a reason:  legacy_call();  // allowed: the reason
(`#`, `/*` and `<!--` begin such a comment as well.) The last line says how many lines are excused.
"""
import argparse
import re
import sys

import source_text

MARKS = re.compile(r"\b(FIX" + r"ME|TO" + r"DO)\b")
WORKPLACE = re.compile(r"(?<![\w.~})$-])/(?:wor" + r"k|roo" + r"t)/\w")
EXCUSE = re.compile(r"(?://|#|/\*|<!--)\s*allowed:\s*(?P<reason>.*?)\s*(?:\*/|-->)?\s*$")
SPDX = re.compile(r"SPDX-License-Identifier: \S+")
SPDX_SUFFIXES = source_text.SOURCE_SUFFIXES + (".py", ".sh", ".js", ".ts", ".tsx", ".css")
SPDX_LINES = 3  # a script has its #! first
DATA = ("tests/corpus/", "tests/data/")  # inputs of tests, not sources


class Ban:
    """One pattern, why it is banned, and the files where it is not."""

    def __init__(self, pattern, why, languages=source_text.SOURCE_SUFFIXES, where="", outside=()):
        self.pattern, self.why = re.compile(pattern), why
        self.languages, self.where, self.outside = languages, where, outside

    def concerns(self, path):
        return path.endswith(self.languages) and path.startswith(self.where) and not path.startswith(self.outside)


CPP = source_text.CPP_SUFFIXES
CALL = r"(?<![\w.>:])(?:::\s*)?(?:std\s*::\s*)?"  # not a member of something else
BANS = [
    Ban(r"\bstd\s*::\s*endl\b", "std::endl flushes; write '\\n'"),
    Ban(r"\bstd\s*::\s*cout\b", "libraries return, programs print", where="src/", outside=("src/cli/",)),
    Ban(r"\b(?:system|steady|high_resolution)_clock\b(?!\s*::\s*(?:time_point|duration)\b)",
        "clocks are passed in (common/time.h) and real only in src/sys", outside=("src/sys/", "tests/must_not_compile/")),
    Ban(r"\brandom_device\b", "chance is passed in (common/rng.h) and real only in src/sys", outside=("src/sys/",)),
    Ban(CALL + r"s?rand(?:_r)?\s*\(", "chance is passed in: common/rng.h", outside=("src/sys/",)),
    Ban(r"\bstd\s*::\s*\w+_distribution\b", "results differ between standard libraries; sample from common/rng.h"),
    Ban(r"\bstd\s*::\s*w?regex\b|#\s*include\s*<regex>", "std::regex recurses on its input and is slow; parse by hand"),
    Ban(CALL + r"(?:ato(?:i|l|ll|f)|sto(?:i|l|ll|ul|ull|f|d|ld)|strto(?:l|ll|ul|ull|f|d|ld|imax|umax))\s*\(",
        "says nothing of bad input; use common/parse.h"),
    Ban(r"(?<![\w.>])assert\s*\(", "CHECK stays on in release builds: common/check.h"),
    Ban(r"\bcatch\s*\(\s*\.\.\.\s*\)", "catch what is thrown, by type; only main, C entry points and third-party edges catch all"),
    Ban(r"\bstd\s*::\s*(?:ranges\s*::\s*)?views\s*::", "clang 14 rejects range adaptors of this standard library"),
    Ban(r"(?<!\boperator )\bnew\b", "one owner: std::make_unique, or std::unique_ptr<T>(new T) where the constructor is private", CPP),
    Ban(r"(?<!= )(?<!=)(?<!\boperator )\bdelete\b", "one owner: std::unique_ptr", CPP),
]
# A private constructor is out of make_unique's reach: `new` straight into a unique_ptr is the owner taking over.
OWNED_NEW = re.compile(r"\bunique_ptr<[^;(){}]*>\s*(?:\w+\s*)?[({]\s*new\b")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Scan:
    """Problems and excuses of one run."""

    def __init__(self):
        self.problems, self.excused = [], []

    def add(self, path, lines, number, found, why):
        excuse = EXCUSE.search(lines[number - 1])
        if excuse is None:
            self.problems.append(f"{path}:{number}: {found}: {why}")
        elif not excuse.group("reason"):
            self.problems.append(f"{path}:{number}: {found}: `allowed:` without a reason")
        else:
            self.excused.append(f"{path}:{number}: {found}: allowed: {excuse.group('reason')}")

    def code(self, path, text, lines):
        code = source_text.strip(text)
        for owned in reversed(list(OWNED_NEW.finditer(code))):
            code = code[:owned.end() - 3] + "   " + code[owned.end():]
        for ban in BANS:
            if ban.concerns(path):
                for match in ban.pattern.finditer(code):
                    found = " ".join(match.group(0).split())
                    start = match.start() + len(match.group(0)) - len(match.group(0).lstrip())
                    self.add(path, lines, line_of(code, start), found, ban.why)

    def text(self, path, text, lines):
        for match in MARKS.finditer(text):
            self.add(path, lines, line_of(text, match.start()), match.group(0), "a known gap goes into docs/known-gaps.md")
        for match in WORKPLACE.finditer(text):
            self.add(path, lines, line_of(text, match.start()), match.group(0)[:-1], "a path of one machine; make it relative")

    def licence(self, path, lines):
        script = lines and lines[0].startswith("#!")
        if (path.endswith(SPDX_SUFFIXES) or script) and not any(SPDX.search(line) for line in lines[:SPDX_LINES]):
            self.problems.append(f"{path}:1: no SPDX-License-Identifier in the first {SPDX_LINES} lines")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    parser.add_argument("--list", action="store_true", help="also print every excused line")
    options = parser.parse_args()
    scan = Scan()
    count = 0
    for path in source_text.tree_files(options.root):
        if path.startswith(DATA) or not source_text.is_text(options.root, path):
            continue
        count += 1
        text = source_text.read(options.root, path)
        lines = text.split("\n")
        scan.text(path, text, lines)
        scan.licence(path, lines)
        if path.endswith(source_text.SOURCE_SUFFIXES):
            scan.code(path, text, lines)
    if options.list:
        print("\n".join(scan.excused))
    return source_text.report("bans", scan.problems, f"{count} files, {len(scan.excused)} lines excused")


if __name__ == "__main__":
    sys.exit(main())
