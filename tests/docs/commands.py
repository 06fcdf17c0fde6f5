#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""commands.py --kansoku PROGRAM [--root FOLDER]: do the commands that the pages show exist, with every option that they use?

Read are the indented lines and the inline code of README.md, CONTRIBUTING.md, docs/, examples/ and the modules' pages. A command of kansoku
must have its subcommand and its options in `--help`; `make` must have the target, and the Makefile the variable; a path below tools/,
tests/, examples/ and share/ must be there, and a program if arguments follow it. Exit status: 0 all do, 1 some do not.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys

FOLDERS = ("docs", "examples", "src", "tests")
PAGES = ("README.md", "CONTRIBUTING.md")
OUR_PATH = re.compile(r"^(?:tools|tests|examples|share)/[\w./-]+$")
PLACEHOLDER = re.compile(r"(?:^|[/_.])[A-Z]{3,}(?:[/_.]|$)")
INLINE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
NAME = re.compile(r"[a-z][a-z0-9-]*")
END = re.compile(r"^(?:[|;&<>]+|&&|\|\||\d?>.*|#.*)$")


def pages(root):
    for name in PAGES:
        yield name
    for folder in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith(".md"):
                    yield os.path.relpath(os.path.join(at, name), root)


def commands(text):
    """(line number, text) of all that may be a command."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("    "):
            yield number, line.strip().removeprefix("$ ")
        else:
            for match in INLINE.finditer(line):
                yield number, match.group(1)


def words_of(command):
    """The words up to the first pipe, redirection or comment; None for text that no shell could read."""
    try:
        words = shlex.split(command.replace("(", " ").replace(")", " "), comments=True)
    except ValueError:
        return None
    for i, word in enumerate(words):
        if END.match(word):
            return words[:i]
    return words


class Program:
    """What `kansoku ... --help` says, asked once a subcommand."""

    def __init__(self, path):
        self.path, self.helps = path, {}

    def help(self, *names):
        if names not in self.helps:
            done = subprocess.run([self.path, *names, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                  stdin=subprocess.DEVNULL, timeout=60)
            self.helps[names] = done.stdout if done.returncode == 0 else None
        return self.helps[names]

    def has(self, name, *above):
        """Whether `name` is a subcommand of `above`."""
        return re.search(rf"^  {re.escape(name)}\s", self.help(*above) or "", re.MULTILINE) is not None

    def problems(self, words):
        names = []
        while words and NAME.fullmatch(words[0]) and self.has(words[0], *names):
            names.append(words.pop(0))
        if not names:
            if words and not words[0].startswith("-") and re.fullmatch(r"[a-z]+", words[0]):
                yield f"kansoku has no command {words[0]}"
            elif words and words[0].startswith("--") and words[0] not in (self.help() or ""):
                yield f"kansoku has no option {words[0]}"
            return
        text = "".join(self.help(*names[:i]) or "" for i in range(1, len(names) + 1))  # options of those above count as well
        for word in words:
            if word == "--":
                return
            option = word.split("=")[0]
            if not OPTION.fullmatch(option) or re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text):
                continue
            if "-" + option[1:2] in text and not option.startswith("--"):
                continue  # -r20
            yield f"kansoku {' '.join(names)} has no option {option}"


def problems_of(words, program, makefile, root):
    name = os.path.basename(words[0])
    if name == "kansoku" and words[0] in ("kansoku", "build/kansoku"):
        yield from program.problems(words[1:])
    elif name == "make" and len(words) > 1 and words[0] == "make":
        for word in words[1:]:
            variable = word.split("=")[0]
            if "=" in word:
                if f"$({variable})" not in makefile and not re.search(rf"\b{re.escape(variable)}\b", makefile):
                    yield f"the Makefile has no variable {variable}"
            elif re.fullmatch(r"[a-z-]+", word) and not re.search(rf"(?:^|\s){re.escape(word)}\b[^=\n]*:", makefile, re.MULTILINE):
                yield f"make has no target {word}"
    for word in words:
        if OUR_PATH.match(word.rstrip(".,:")) and not PLACEHOLDER.search(word) and not os.path.exists(os.path.join(root, word.rstrip(".,:"))):
            yield f"no {word}"
    path = os.path.join(root, words[0])
    if len(words) > 1 and OUR_PATH.match(words[0]) and os.path.isfile(path) and not os.access(path, os.X_OK):
        yield f"{words[0]} is no program"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kansoku", required=True)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    options = parser.parse_args()
    program = Program(options.kansoku)
    with open(os.path.join(options.root, "Makefile"), encoding="utf-8") as file:
        makefile = file.read()
    count, problems = 0, []
    for page in pages(options.root):
        with open(os.path.join(options.root, page), encoding="utf-8") as file:
            text = file.read()
        for number, command in commands(text):
            words = words_of(command)
            if not words:
                continue
            found = [f"{page}:{number}: {problem}" for problem in problems_of(words, program, makefile, options.root)]
            count += words[0] in ("kansoku", "build/kansoku", "make") or words[0].startswith("tools/")
            problems += found
    print("\n".join(problems + [f"{count} commands, {len(problems)} problems"]))
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
