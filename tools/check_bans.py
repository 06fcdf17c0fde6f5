#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tracked files for what the house does not use: check_bans.py [--root FOLDER] [--list]

Bans look at code without comments and literals; the marks and paths also at comments and at every other text file. A comment
may not begin with a word that leaves its subject to the code ("What it does."). A line may be excused where it stands, with a
reason:  legacy_call();  // allowed: the reason
(`#`, `/*` and `<!--` begin such a comment as well.) The last line says how many lines are excused.
"""
import re
import sys

import source_text

MARKS = re.compile(r"\b(FIX" + r"ME|TO" + r"DO)\b")
WORKPLACE = re.compile(r"(?<![\w.~})$-])/(?:wor" + r"k|roo" + r"t)/\w")
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
# A comment that begins so is half a sentence: the reader has to find its subject in the code below. "What-if" is a method.
HALF_SENTENCE = re.compile(r"(?://[/!<]*|/\*+|\s*\*)?\s+((?:Of|What|Whether|Who|Where)\b(?!-))")
HALF_REMARK = re.compile(r"(?://[/!<]*|/\*+)\s+((?:[Ww]hat|[Ww]hether|[Ww]ho|[Ww]here|Of)\b(?!-))")  # behind code
COMMENTED_SUFFIXES = source_text.SOURCE_SUFFIXES + (".cu", ".inc")
# A private constructor is out of make_unique's reach: `new` straight into a unique_ptr is the owner taking over.
OWNED_NEW = re.compile(r"\bunique_ptr<[^;(){}]*>\s*(?:\w+\s*)?[({]\s*new\b")


def add(findings, path, lines, number, found, why):
    findings.add(f"{path}:{number}: {found}", why, source_text.EXCUSE.search(lines[number - 1]))


def code_problems(findings, path, text, lines):
    code = source_text.strip(text)
    for owned in reversed(list(OWNED_NEW.finditer(code))):
        code = code[:owned.end() - 3] + "   " + code[owned.end():]
    for ban in BANS:
        if ban.concerns(path):
            for match in ban.pattern.finditer(code):
                found = " ".join(match.group(0).split())
                start = match.start() + len(match.group(0)) - len(match.group(0).lstrip())
                add(findings, path, lines, source_text.line_of(code, start), found, ban.why)


def mark_problems(findings, path, text, lines):
    for match in MARKS.finditer(text):
        add(findings, path, lines, source_text.line_of(text, match.start()), match.group(0), "a known gap goes into docs/known-gaps.md")
    for match in WORKPLACE.finditer(text):
        add(findings, path, lines, source_text.line_of(text, match.start()), match.group(0)[:-1], "a path of one machine; make it relative")


def comment_problems(findings, path, text, lines):
    for start, comment in source_text.comments(text):
        is_remark = text[text.rfind("\n", 0, start) + 1:start].strip() != ""
        for index, line in enumerate(comment.split("\n")):
            match = (HALF_REMARK if is_remark and index == 0 else HALF_SENTENCE).match(line)
            if match:
                number = source_text.line_of(text, start) + index
                add(findings, path, lines, number, f"a comment begins with `{match.group(1)}`",
                    "begin with the thing or a verb: `Result of a run.`, `True if ...`, `Sites that ...`")


def licence_problems(findings, path, lines):
    script = lines and lines[0].startswith("#!")
    if (path.endswith(SPDX_SUFFIXES) or script) and not any(SPDX.search(line) for line in lines[:SPDX_LINES]):
        findings.problems.append(f"{path}:1: no SPDX-License-Identifier in the first {SPDX_LINES} lines")


def scan(findings, root):
    count = 0
    for path in source_text.tree_files(root):
        if path.startswith(DATA) or not source_text.is_text(root, path):
            continue
        count += 1
        text = source_text.read(root, path)
        lines = text.split("\n")
        mark_problems(findings, path, text, lines)
        licence_problems(findings, path, lines)
        if path.endswith(source_text.SOURCE_SUFFIXES):
            code_problems(findings, path, text, lines)
        if path.endswith(COMMENTED_SUFFIXES):
            comment_problems(findings, path, text, lines)
    return count


if __name__ == "__main__":
    sys.exit(source_text.check_lines("bans", __doc__, scan))
