#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that the compiler must refuse.

run.py [--compiler g++] [--flag FLAG]... [FILE.cc]...: compiles each snippet of this folder (or those named) twice. Without
MUST_NOT_COMPILE it must pass, so that nothing but the lines under that macro can be at fault; with it the compiler must
fail with a message that matches the snippet's line `// expect: <regex>`. Exit status 1 if one does not.
"""
import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE.parent.parent / "src"
FLAGS = ["-fsyntax-only", "-std=c++20", "-Werror", f"-I{SOURCES}"]


def compile_snippet(command, snippet, defines):
    """Exit status and messages of the compiler."""
    result = subprocess.run([*command, *defines, str(snippet)], capture_output=True, text=True, check=False)
    return result.returncode, result.stderr


def check(command, snippet):
    """What is wrong with one snippet, or None."""
    expected = re.search(r"^// expect: (.+)$", snippet.read_text(), re.MULTILINE)
    if not expected:
        return "has no line `// expect: <regex>`"
    status, messages = compile_snippet(command, snippet, [])
    if status != 0:
        return f"is refused without MUST_NOT_COMPILE:\n{messages}"
    status, messages = compile_snippet(command, snippet, ["-DMUST_NOT_COMPILE"])
    if status == 0:
        return "compiles"
    errors = [line for line in messages.splitlines() if re.search(r"\berror: ", line)]
    if not any(re.search(expected.group(1), line) for line in errors):
        return f"is refused for another reason than /{expected.group(1)}/:\n{messages}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flag", action="append", default=[])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    snippets = options.files or sorted(HERE.glob("*.cc"))
    failures = 0
    for snippet in snippets:
        problem = check([options.compiler, *FLAGS, *options.flag], snippet)
        print(f"{snippet.name}: {problem or 'refused, as it must be'}")
        failures += problem is not None
    print(f"{len(snippets)} snippets, {failures} failed")
    return 1 if failures or not snippets else 0


if __name__ == "__main__":
    sys.exit(main())
