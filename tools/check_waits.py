#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Finds tests that sleep: check_waits.py [--root FOLDER] [--list]

A test waits for a state (`wait COMMAND until ...`, a pipe, a condition), never for a time: on a busy machine no time is long enough,
on an idle one each is too long. Looked at are text cases and the files beside them, *_test.cc, *_for_test*, and the programs under
tests/ that ctest runs. A line is excused where it stands, with a reason:  usleep(100);  // allowed: the pause of a poll loop
(`#` begins such a comment as well), a line of a text case by the line above it:  # sleep allowed: what is watched, not a wait
The last line says how many lines are excused; --list prints them.
"""
import io
import re
import sys
import tokenize

import source_text

CASE_EXCUSE = re.compile(r"^#\s*sleep allowed:\s*(?P<reason>.*?)\s*$")
HELPER = re.compile(r"_for_test\.\w+$")
SCRIPTS = (".py", ".sh", ".case")
CODE = source_text.SOURCE_SUFFIXES + (".cu", ".inc")
# Evaluations, not tests: they plant faults and measure jobs for minutes and hours, and time is their subject. ctest runs of them only
# what looks at tables and recordings.
MEASURE = ("tests/eval/", "tests/faults/", "tests/watch/", "tests/harness/", "tests/false_confidence/", "tests/fresh_root/", "bench/",
           "tests/llm/faults.py", "tests/llm/levels.py", "tests/llm/tables.py")
DATA = ("tests/corpus/", "tests/data/")
NAME = r"(?:(?:u|nano|clock_nano)?sleep|sleep_(?:for|until))"
CALL = re.compile(rf"\b{NAME}\s*\(|\b(?:poll|select)\s*\((?:\s*(?:nullptr|NULL|0)\s*,)+")
PYTHON_CALL = re.compile(rf"\b{NAME}\s*\(|\bselect\s*\(\s*\[\]\s*,\s*\[\]\s*,\s*\[\]|\bEvent\(\)\s*\.\s*wait\s*\(")
SHELL = re.compile(r"""(?<![\w.-])u?sleep(?:\s+|["']\s*,\s*["'])[\d.$]""")  # in a string: a command line, or the parts of one
CASE = re.compile(rf"(?<![\w-]){NAME}(?=\s|\(|$)")
WHY = "wait for a state, not for a time"


def concerns(path):
    """Whether a file is (part of) a test that ctest runs."""
    if path.startswith(MEASURE + DATA):
        return False
    if path.startswith("tests/"):
        return path.endswith(SCRIPTS + CODE)
    return path.startswith("src/") and (path.endswith("_test.cc") or HELPER.search(path) is not None)


def without_comments(text):
    """Python text with its comments turned into spaces; as it is where it is no Python that this interpreter knows."""
    lines = text.split("\n")
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    except (tokenize.TokenError, SyntaxError):
        return text
    return "\n".join(lines)


def sleeps(path, text):
    """(line number, what was found) of every sleep in a file."""
    if path.endswith((".case", ".sh")):
        found = [(code, CASE) for code in [re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE)]]
    elif path.endswith(".py"):
        code = without_comments(text)
        found = [(code, PYTHON_CALL), (code, SHELL)]
    else:
        found = [(source_text.strip(text), CALL), (source_text.strip(text, keep_strings=True), SHELL)]
        if re.search(r"\bsleep\s*=\s*\[", found[0][0]):  # a lambda of that name, of simulated time
            found[0] = (re.sub(r"(?<![\w:.])sleep\b", "     ", found[0][0]), CALL)
    by_line = {}
    for code, pattern in found:
        for match in pattern.finditer(code):
            by_line.setdefault(source_text.line_of(code, match.start()), re.match(r"\w+", match.group(0)).group(0))
    return sorted(by_line.items())


def check_file(findings, path, text):
    lines = text.split("\n")
    used = set()
    in_case = path.endswith(".case")
    for number, found in sleeps(path, text):
        above = lines[number - 2] if number > 1 else ""
        used.add(number - 1)
        excuse = CASE_EXCUSE.search(above) if in_case else source_text.EXCUSE.search(lines[number - 1])
        findings.add(f"{path}:{number}: {found}", WHY, excuse)
    for number, line in enumerate(lines, 1):
        if in_case and CASE_EXCUSE.search(line) and number not in used:
            findings.problems.append(f"{path}:{number}: `sleep allowed:` above a line that does not sleep")


def scan(findings, root):
    paths = [path for path in source_text.tree_files(root) if concerns(path)]
    for path in paths:
        check_file(findings, path, source_text.read(root, path))
    return len(paths)


if __name__ == "__main__":
    sys.exit(source_text.check_lines("waits", __doc__, scan))
