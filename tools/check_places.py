#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The pages about the code name what is there: check_places.py [--write] [--root FOLDER]

In PAGES and the README.md of every module it looks at
  - `path`: a file, a folder or a glob of the tree; from its root, from src/, or from the folder of the page's module. An ending may be
    left out (`capture/attacher`); words in capitals and a lone x stand for anything (`share/probes/NAME.toml`, `x_test.cc`)
  - `path:line` `name`: the line has the name; where lines that begin at the left have it (definitions), one of these
  - the table of modules in docs/tour.md: a row for each module of src/layers.txt, in its order
  - `name` (`file`), `name` in `file`, and the names in a row of a table that begins with files: the file or its twin (.h, .cc) has it

--write puts the nearest line that has the name into `path:line` `name`. Exit status: 0 passed, 1 problems.
"""
import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
import source_text  # noqa: E402

PAGES = ("docs/tour.md", "docs/principles.md", "docs/recipes.md", "docs/event.md", "CONTRIBUTING.md")
TOUR = "docs/tour.md"
LINES_NEEDED = "docs/event.md"  # here every place of a source has its name
SUFFIX = r"\.(?:h|cc|c|toml|inc|py|sh|cmake|case|md|txt|js|css|map)"
SPAN = re.compile(r"`([^`\n]+)`")
WORDS = re.compile(r"[\w.*/-]+")
FILE = re.compile(r"[\w*][\w.*/-]*" + SUFFIX)
PLACE = re.compile(r"`([\w./-]+):(\d+)`(?:\s+`([^`\n]+)`)?")
STANDS_FOR = re.compile(r"[A-Z]{2,}(?:_[A-Z]+)*|(?<![a-z])x(?=[._])")
NAME = re.compile(r"(?=.*[_A-Z:])[A-Za-z_][\w:]*")  # a word in small letters is no name of code
NAME_AND_FILE = re.compile(r"`([^`\n]+)` (?:\(|in |of )`([^`\n]+)`")
CODE_LINE = re.compile(r"^ {4}.*$", re.MULTILINE)


class Tree:
    """The tracked files, found by any ending of their path, with or without the ending of the name."""

    def __init__(self, root):
        self.root, self.texts, self.found = root, {}, {}
        self.files = source_text.tree_files(root)
        folders = {os.path.dirname(path) for path in self.files}
        for folder in list(folders):
            while folder := os.path.dirname(folder):
                folders.add(folder)
        self.paths = sorted(set(self.files) | folders - {""})
        for path in self.paths:
            stem = path[:len(path) - len(os.path.basename(path))] + os.path.basename(path).split(".")[0]
            for form in {path, stem}:
                while form:
                    self.found.setdefault(form, []).append(path)
                    form = form.partition("/")[2]
        self.tops = {path.removeprefix("src/").split("/")[0] for path in folders if path} | {"src", "internal"}

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = source_text.read(self.root, path) if path in self.files else ""
        return self.texts[path]

    def named(self, word, module):
        """The paths that `word` names on a page of `module` ("" for a page of the whole)."""
        word = word.strip("/")
        found = self.found.get(word, [])
        if not found and ("*" in word or STANDS_FOR.search(word)):
            pattern = re.escape(STANDS_FOR.sub("*", word)).replace(r"\*", "[^/]*")
            wanted = re.compile(rf"(?:.*/)?{pattern}(?:\.\w+)*")
            found = [path for path in self.paths if wanted.fullmatch(path)]
        if "/" not in word and not module:
            return found
        depth = word.count("/")
        return [path for path in found
                if path.count("/") == depth or (path.startswith("src/") and path.count("/") == depth + 1)
                or (module and path.startswith(f"src/{module}/"))]

    def has(self, paths, name):
        """Whether one of the files, its twin, or a file of the folder has the name as a word; an ABI's version may follow it."""
        last = re.compile(rf"\b{re.escape(name.split('::')[-1])}(?:_v\d)?\b")
        paths = paths + [file for path in paths if path not in self.files for file in self.files if file.startswith(path + "/")]
        return any(last.search(self.text(twin)) for path in paths for stem in [re.sub(r"\.(h|cc)$", "", path)]
                   for twin in {path, stem + ".h", stem + ".cc"} & set(self.files))


def is_path(tree, span):
    if not WORDS.fullmatch(span) or span[0] in "-/." or span.startswith("build/"):
        return False
    if FILE.fullmatch(span):
        return True
    return "/" in span and span.split("/")[0] in tree.tops


def lines_with(tree, path, name):
    """The lines that have the name; where some of them begin at the left, these alone."""
    word = re.compile(rf"(?<![\w:]){re.escape(name)}(?![\w:])")
    lines = [(number, line) for number, line in enumerate(tree.text(path).split("\n"), 1) if word.search(line)]
    left = [number for number, line in lines if re.match(r"[A-Za-z\[]", line)]
    return left or [number for number, _ in lines]


def places(tree, page, text, problems):
    """Problems of `path:line` `name`; the text with the lines as they are now."""

    def place(match):
        path, line, name = match.group(1), int(match.group(2)), match.group(3)
        where = f"{page}:{source_text.line_of(text, match.start())}: {path}:{line}"
        if path not in tree.files:
            problems.append(f"{where}: no such file")
        elif not name:
            if page == LINES_NEEDED:
                problems.append(f"{where}: without the name of what is there")
        else:
            lines = lines_with(tree, path, name)
            if not lines:
                problems.append(f"{where}: no {name} in that file")
            elif line not in lines:
                nearest = min(lines, key=lambda number: abs(number - line))
                problems.append(f"{where}: {name} is in line {nearest} (--write puts it in)")
                return match.group(0).replace(f":{line}`", f":{nearest}`", 1)
        return match.group(0)

    return PLACE.sub(place, text)


def paths(tree, page, module, text, problems):
    count = 0
    for match in SPAN.finditer(CODE_LINE.sub(lambda line: " " * len(line.group(0)), text)):
        if is_path(tree, match.group(1)):
            count += 1
            if not tree.named(match.group(1), module):
                problems.append(f"{page}:{source_text.line_of(text, match.start())}: `{match.group(1)}`: no such path")
    return count


def pairs(tree, text):
    """(offset, name, words that name files) where a page says that a file has a name."""
    for match in NAME_AND_FILE.finditer(text):
        yield match.start(), match.group(1), [match.group(2)]
    for row in re.finditer(r"^\|([^|\n]*)\|(.*)\|$", text, re.MULTILINE):
        files = [span for span in SPAN.findall(row.group(1)) if is_path(tree, span)]
        if files and len(files) == len(SPAN.findall(row.group(1))):
            for span in SPAN.finditer(row.group(2)):
                yield row.start(2) + span.start(), span.group(1), files


def names(tree, page, module, text, problems):
    count = 0
    for offset, name, words in pairs(tree, text):
        name = re.sub(r"(<.*>|\(.*\))$", "", name)
        if not NAME.fullmatch(name) or not all(is_path(tree, word) for word in words):
            continue
        count += 1
        found = [path for word in words for path in tree.named(word, module)]
        if found and not tree.has(found, name):
            problems.append(f"{page}:{source_text.line_of(text, offset)}: `{name}`: not in {' '.join(words)}")
    return count


def modules(tree, problems):
    """The tour shows every module, from the ground up."""
    if TOUR not in tree.files or "src/layers.txt" not in tree.files:
        return
    text = tree.text(TOUR)
    table = re.search(r"^\| module \|.*\n\|[-| ]+\n((?:\|.*\n)*)", text, re.MULTILINE)
    if not table:
        problems.append(f"{TOUR}: no table of modules")
        return
    shown = re.findall(r"^\| `([\w/]+)` \|", table.group(1), re.MULTILINE)
    listed = re.findall(r"^([a-z][\w/]*):", tree.text("src/layers.txt"), re.MULTILINE)
    where = f"{TOUR}:{source_text.line_of(text, table.start())}"
    problems += [f"{where}: no row for {module}" for module in listed if module not in shown]
    problems += [f"{where}: {module} is no module of src/layers.txt" for module in shown if module not in listed]
    if sorted(shown) == sorted(listed) and shown != listed:
        problems.append(f"{where}: the modules stand in another order than in src/layers.txt")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    parser.add_argument("--write", action="store_true", help="put the lines of today into `path:line` `name`")
    options = parser.parse_args()
    tree, problems, count = Tree(options.root), [], 0
    pages = [path for path in tree.files if path in PAGES or re.fullmatch(r"src/.*README\.md", path)]
    for page in pages:
        text, module = tree.text(page), os.path.dirname(page)[len("src/"):] if page.startswith("src/") else ""
        own = []
        written = places(tree, page, text, own)
        if options.write and written != text:
            with open(os.path.join(options.root, page), "w", encoding="utf-8") as file:
                file.write(written)
            own = [line for line in own if "(--write" not in line]
        problems += own
        count += len(PLACE.findall(text)) + paths(tree, page, module, text, problems) + names(tree, page, module, text, problems)
    modules(tree, problems)
    return source_text.report("places", problems, f"{count} paths and names on {len(pages)} pages")


if __name__ == "__main__":
    sys.exit(main())
