#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Pages for people: their links lead somewhere, a page for a task is short, no formatter was at them: check_docs.py [--root FOLDER]

Links of every tracked page are looked at, within the repository: the file must be there, and the heading that a link names. A page of docs/
has at most 120 lines; references (REFERENCES) and measurements may be longer. Every page begins with its heading. A formatter of C++ leaves
traces in a page that it takes for code (DAMAGE, tables of unequal rows, text that became a code block): each is a problem.
Exit status: 0 passed, 1 problems.
"""
import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
import source_text  # noqa: E402

LINES_MAX = 120
REFERENCES = ("docs/formats/", "docs/measurements/", "docs/thresholds.md", "docs/softcuda-coverage.md",
              "docs/softcuda-companions-coverage.md", "docs/softcuda-runtime-coverage.md", "docs/known-gaps.md", "docs/recipes.md")
LINK = re.compile(r"\[[^\]\n]*\](?:\n\s*)?\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
CODE = re.compile(r"```[\s\S]*?```|^ {4}(?![*-] ).*$|`[^`\n]*`", re.MULTILINE)

FENCE = re.compile(r"```[\s\S]*?```")
SPAN = re.compile(r"`[^`\n]*`")
LIST_ITEM = re.compile(r"\s*([*-]|\d+\.) ")
RULE = re.compile(r"[\s|:-]+")
CELL_END = re.compile(r"(?<!\\)\|")
DAMAGE = (  # in a line whose code spans are empty
    (re.compile(r"#{1,6}[^ #]| {1,3}#{1,6} "), "a heading is `# words`, at the left"),
    (re.compile(r".*(``|\))\.[A-Z]"), "a sentence begins without a space before it"),
    (re.compile(r".*\.-( |$)"), "an item of a list has joined the line before it"),
    (re.compile(r"(?!\|).* :( |$)"), "a space before a colon"),
)
SPREAD_PATH = re.compile(r"`[^`\n]*\w / \w[^`\n]*\.(?:h|cc|c|toml|inc|md|py|txt)`")


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


def table_damage(rows):
    """(line, why) for the rows of a table, each with its line."""
    if len(rows) < 2 or not RULE.fullmatch(rows[1][1]):
        yield rows[0][0], "a row without a table"
        return
    cells = len(CELL_END.findall(rows[0][1])) - 1
    for number, row in rows:
        found = len(CELL_END.findall(row)) - 1
        if not row.rstrip().endswith("|"):
            yield number, "a row of a table ends in another line"
        elif found != cells:
            yield number, f"a row of {found} cells in a table of {cells}"


def line_damage(line):
    plain = SPAN.sub("``", line)
    for pattern, why in DAMAGE:
        if pattern.match(plain):
            yield why
    if SPREAD_PATH.search(line):
        yield "spaces around the slash of a path"


def damage(text):
    """(line, why) for each trace that a formatter of another language left."""
    if not re.match(r"# \S", text):
        yield 1, "a page begins with its heading: `# words`"
    rows, in_list, before = [], False, ""
    for number, line in enumerate(FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text).split("\n") + [""], 1):
        in_list = bool(LIST_ITEM.match(line)) or (in_list and (not line.strip() or line.startswith(" ")))
        if line.lstrip().startswith("|") and (in_list or not line.startswith(" ")):
            rows.append((number, line))
        elif rows:
            yield from table_damage(rows)
            rows = []
        if not line.startswith("    "):
            yield from ((number, why) for why in line_damage(line))
        elif line.strip() and before.strip() and not before.startswith("    ") and not in_list:
            yield number, "indented as code, right behind a line of text"
        before = line


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
        problems += [f"{page}:{line}: {why}" for line, why in damage(text)]
        for line, target in links_of(text):
            links += 1
            why = broken(options.root, page, target)
            if why:
                problems.append(f"{page}:{line}: link to {target}: {why}")
    return source_text.report("docs", problems, f"{len(pages)} pages, {links} links")


if __name__ == "__main__":
    sys.exit(main())
