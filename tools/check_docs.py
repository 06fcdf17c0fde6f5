#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Pages for people: their links lead somewhere, and a page for a task is short: check_docs.py [--root FOLDER]

Links of every tracked page are looked at, within the repository: the file must be there, and the heading that a link names. A page of docs/
has at most 120 lines; references (REFERENCES) and measurements may be longer. Exit status: 0 passed, 1 problems.
"""
import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
import source_text  # noqa: E402

LINES_MAX = 120
REFERENCES = ("docs/formats/", "docs/measurements/", "docs/thresholds.md", "docs/softcuda-coverage.md",
              "docs/softcuda-companions-coverage.md", "docs/softcuda-runtime-coverage.md", "docs/known-gaps.md")
LINK = re.compile(r"\[[^\]\n]*\](?:\n\s*)?\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
CODE = re.compile(r"```[\s\S]*?```|^ {4}(?![*-] ).*$|`[^`\n]*`", re.MULTILINE)


def anchor(heading):
    """As hosts of Markdown make it: lower case, spaces to dashes, no punctuation."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(text):
    found = {}
    for match in HEADING.finditer(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        name = anchor(match.group(1))
        count = found.get(name, 0)
        found[name] = count + 1
        yield name if count == 0 else f"{name}-{count}"


def links_of(text):
    code = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    for match in LINK.finditer(code):
        yield source_text.line_of(text, match.start()), match.group(1)


def broken(root, page, target):
    """Why a link leads nowhere, or None."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, name = target.partition("#")
    file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if not os.path.exists(os.path.join(root, file)):
        return f"no {file}"
    if name and file.endswith(".md") and name not in anchors(source_text.read(root, file)):
        return f"{file} has no heading {name}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    options = parser.parse_args()
    problems, links = [], 0
    pages = [path for path in source_text.tree_files(options.root) if path.endswith(".md")]
    for page in pages:
        text = source_text.read(options.root, page)
        count = text.count("\n")
        if page.startswith("docs/") and not page.startswith(REFERENCES) and count > LINES_MAX:
            problems.append(f"{page}: {count} lines, at most {LINES_MAX}: split it by task")
        for line, target in links_of(text):
            links += 1
            why = broken(options.root, page, target)
            if why:
                problems.append(f"{page}:{line}: link to {target}: {why}")
    return source_text.report("docs", problems, f"{len(pages)} pages, {links} links")


if __name__ == "__main__":
    sys.exit(main())
