# SPDX-License-Identifier: Apache-2.0
"""What the checkers share: the files of the tree, C and C++ text without comments and literals, and lines that are excused."""
import argparse
import os
import re
import subprocess

CPP_SUFFIXES = (".cc", ".h")
C_SUFFIXES = (".c",)
SOURCE_SUFFIXES = CPP_SUFFIXES + C_SUFFIXES
TEST_FILE = re.compile(r"_(test|bench|fuzz)\.(cc|h|c)$")  # also *_for_test.h
EXCUSE = re.compile(r"(?://|#|/\*|<!--)\s*allowed:\s*(?P<reason>.*?)\s*(?:\*/|-->)?\s*$")
SKIP_EXIT = 77  # a check that cannot run here; tools/check counts it as skipped

_TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
      |(?P<number>\b\d(?:'?[\w.])*)                       # 1'000'000 holds no character literal
      |(?P<raw>\b(?:u8|u|U|L)?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")
      |(?P<string>"(?:\\.|[^"\\\n])*")
      |(?P<char>'(?:\\.|[^'\\\n])*')""",
    re.DOTALL | re.VERBOSE,
)
_NOT_NEWLINE = re.compile(r"[^\n]")


def strip(text, keep_strings=False):
    """`text` with every comment and literal turned into spaces (quotes stay); lines and columns keep their places."""

    def blank(match):
        found = match.group(0)
        if match.lastgroup == "number" or (keep_strings and not match.group("comment")):
            return found
        if match.group("comment"):
            return _NOT_NEWLINE.sub(" ", found)
        return found[0] + _NOT_NEWLINE.sub(" ", found[1:-1]) + found[-1]

    return _TOKEN.sub(blank, text)


def comments(text):
    """Position and text of every comment; none is inside a literal."""
    return [(match.start(), match.group(0)) for match in _TOKEN.finditer(text) if match.group("comment")]


def tree_files(root):
    """Paths of the tracked files under `root`, sorted; of all files where `root` is no git checkout (a release archive)."""
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=True).stdout
        paths = [path for path in listed.decode().split("\0") if path]
    else:
        paths = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in ("build", "__pycache__", ".git")]
            paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path for path in paths if os.path.isfile(os.path.join(root, path)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def is_text(root, path):
    with open(os.path.join(root, path), "rb") as file:
        return b"\0" not in file.read(8192)


def repository_root():
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def report(name, problems, passed):
    """Prints the problems, then one line that sums up. The exit status of a checker."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{name}: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
        return 1
    print(f"{name}: {passed}")
    return 0


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Findings:
    """What a checker found: problems, and lines that are excused with a reason."""

    def __init__(self):
        self.problems, self.excused = [], []

    def add(self, place, why, excuse):
        """`excuse` is a match with a group `reason`, or None."""
        if excuse is None:
            self.problems.append(f"{place}: {why}")
        elif not excuse.group("reason"):
            self.problems.append(f"{place}: `allowed:` without a reason")
        else:
            self.excused.append(f"{place}: allowed: {excuse.group('reason')}")


def check_lines(name, doc, scan):
    """The program of a checker of lines: scan(findings, root) gives the number of files that it read. The exit status."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=repository_root(), help="tree to check [this one]")
    parser.add_argument("--list", action="store_true", help="also print every excused line")
    options = parser.parse_args()
    findings = Findings()
    count = scan(findings, options.root)
    if options.list:
        print("\n".join(findings.excused))
    return report(name, findings.problems, f"{count} files, {len(findings.excused)} lines excused")
