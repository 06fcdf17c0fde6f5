# SPDX-License-Identifier: Apache-2.0
"""Which tests of a suite a change adds or touches, told from the text of the change.

A unit test is touched by a changed line of its body, and all of a file by one that belongs to no body (a fixture, a helper); a file
with `_for_test` in its name touches the tests of what includes it. A program or a folder under tests/ touches the tests whose
commands name it, and a script the text cases and programs that name it. Lines that only hold comments or an #include do not count.
"""
import os
import re
import subprocess

import compile_commands
import source_text

HOURS_BACK = 4  # a clone of what is submitted has no main line to compare with: its newest work counts
TEST_HEAD = re.compile(r"^[ \t]*(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
INERT = re.compile(r"^\s*(?:$|//|#\s*include\b)")
SOURCES = (".cc", ".c")


def git(root, *arguments):
    """What git prints; None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", root, "-c", "core.quotepath=off", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, errors="replace", check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip("\n") if done.returncode == 0 else None


def default_base(root):
    """The merge base with origin/main; where that is HEAD or there is none, the newest commit more than four hours older than HEAD,
    or the first one. None without history."""
    head = git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    if head is None:
        return None
    base = git(root, "merge-base", "HEAD", "origin/main")
    if base in (None, head):
        before = int(git(root, "log", "-1", "--format=%ct")) - HOURS_BACK * 3600 - 1
        base = git(root, "rev-list", "-1", f"--before={before}", "HEAD") or git(root, "rev-list", "--max-parents=0", "HEAD").split()[-1]
    return base


class Hunk:
    """Lines `first` to `last` of the new text; where lines only went away, the two between which they were."""

    def __init__(self, first, count):
        self.first, self.last, self.gone = first, first + max(count - 1, 1 - count), count == 0
        self.gone_matters = False


def changes(root, base):
    """{path: hunks} of all that differs from `base`, committed or not; hunks is None for a file that git does not know yet."""
    text = git(root, "diff", "-U0", "--no-color", "--no-ext-diff", "--diff-filter=d", "--src-prefix=a/", "--dst-prefix=b/", base)
    if text is None:
        return None
    found, hunks = {}, []
    for line in text.split("\n"):
        match = HUNK.match(line)
        if line.startswith("+++ b/"):
            hunks = found.setdefault(line[len("+++ b/"):].rstrip("\t"), [])
        elif match:
            hunks.append(Hunk(int(match.group(1)), int(match.group(2) or 1)))
        elif line.startswith("-") and not line.startswith("--- ") and hunks and not INERT.match(line[1:]):
            hunks[-1].gone_matters = True
    for path in (git(root, "ls-files", "--others", "--exclude-standard") or "").split("\n"):
        if path:
            found[path] = None
    return found


def code_of(text):
    """The words of a source; comments and layout do not count."""
    return source_text.strip(text, keep_strings=True).split()


def with_new_code(root, base, paths):
    """Those of the paths whose code differs from the base's."""
    wanted_blobs = "".join(f"{base}:{path}\n" for path in paths)
    out = subprocess.run(["git", "-C", root, "cat-file", "--batch"], input=wanted_blobs.encode(), stdout=subprocess.PIPE, check=False).stdout
    found, at = set(), 0
    for path in paths:
        end = out.index(b"\n", at)
        head, at = out[at:end].split(), end + 1
        old = None
        if len(head) == 3 and head[1] == b"blob":
            old = out[at:at + int(head[2])].decode(errors="replace")
            at += int(head[2]) + 1
        full = os.path.join(root, path)
        if os.path.isfile(full) and (old is None or code_of(old) != code_of(source_text.read(root, path))):
            found.add(path)
    return found


def bodies(text):
    """(suite, name, first line, last line) of every GoogleTest test of a file."""
    code = source_text.strip(text)
    for match in TEST_HEAD.finditer(code):
        depth, end = 0, len(code)
        for brace in re.finditer(r"[{}]", code[match.end():]):
            depth += 1 if brace.group(0) == "{" else -1
            if depth == 0:
                end = match.end() + brace.start()
                break
        yield match.group(1), match.group(2), code.count("\n", 0, match.start()) + 1, code.count("\n", 0, end) + 1


def touched_bodies(text, hunks):
    """(suite, name) of the tests that the hunks touch: of all of them where a hunk is None or touches what belongs to none."""
    found = list(bodies(text))
    everything = {(suite, name) for suite, name, _, _ in found}
    if hunks is None:
        return everything
    lines = source_text.strip(text, keep_strings=True).split("\n")
    touched = set()
    for hunk in hunks:
        inside = {(suite, name) for suite, name, first, last in found if hunk.first <= last and hunk.last >= first}
        if hunk.gone:
            whole = [(suite, name) for suite, name, first, last in found if first <= hunk.first and hunk.last <= last]
            inside, outside = set(whole), hunk.gone_matters and not whole
        else:
            covered = {line for _, _, first, last in found for line in range(first, last + 1)}
            outside = any(not INERT.match(lines[line - 1]) for line in range(hunk.first, hunk.last + 1) if line not in covered)
        if outside:
            return everything
        touched |= inside
    return touched


class Tree:
    """What the sources say of each other: who includes whom, and which program is made of what."""

    def __init__(self, root, build):
        self.root = root
        self.included_by = {}
        listed = (git(root, "ls-files", "--cached", "--others", "--exclude-standard") or "").split("\n")
        self.paths = [path for path in listed if path.startswith(("src/", "tests/")) and os.path.isfile(os.path.join(root, path))]
        for path in self.paths:
            if path.endswith(SOURCES + (".h", ".inc")):
                for name in INCLUDE.findall(source_text.read(root, path)):
                    for full in ("src/" + name, os.path.normpath(os.path.join(os.path.dirname(path), name))):
                        self.included_by.setdefault(full, set()).add(path)
        self.targets = compile_commands.targets(build, root)

    def programs(self, path):
        """Names of the programs that are made of a source file; by its name where the build does not tell."""
        return self.targets.get(path) or {os.path.splitext(os.path.basename(path))[0]}

    def includers(self, path):
        """Source files that include a helper of tests, also by way of another one."""
        stem, suffix = os.path.splitext(path)
        waiting, seen = [path] + ([stem + ".h"] if suffix in SOURCES else []), set()
        while waiting:
            for user in self.included_by.get(waiting.pop(), ()):
                if user not in seen:
                    seen.add(user)
                    waiting += [user] if is_helper(user) else []
        return {user for user in seen if user.endswith(SOURCES)}


def is_helper(path):
    return "_for_test" in os.path.basename(path) or (path.startswith("tests/") and path.endswith((".h", ".inc")))


def names(root, script, path):
    """Whether a text case or a program under tests/ names another file: by its path, or by its name where they lie side by side."""
    text = source_text.read(root, script)
    stem, suffix = os.path.splitext(os.path.basename(path))
    if path.startswith("tests/kit/") and script.endswith(".py"):
        return re.search(r"^(?:import|from) kit\b", text, re.MULTILINE) is not None
    if path in text or os.path.dirname(script) != os.path.dirname(path):
        return path in text
    return stem + suffix in text or (suffix == ".py" and re.search(rf"\b(?:import|from) {re.escape(stem)}\b", text) is not None)


def parts_in_tests(root, test):
    """The paths under tests/ that a test's command names."""
    paths = (os.path.relpath(part, root) for part in test.command if os.path.isabs(part))
    return [path for path in paths if path.startswith("tests/")]


def is_gtest(test, tree, path, pairs):
    """Whether a test is one of these (suite, name), compiled from `path`."""
    match = re.fullmatch(r"(?:[^/.]+/)?([^/.]+)(?:/[^/.]+)?\.([^/.]+)(?:/.*)?", test.gtest or "")
    if not match or match.groups() not in pairs:
        return False
    return path not in tree.targets or os.path.basename(test.command[0]) in tree.targets[path]


class Selection:
    """Collects the touched tests, each with the path that touches it."""

    def __init__(self, root, tests, tree):
        self.root, self.tests, self.tree = root, tests, tree
        self.reasons = {}

    def add(self, path, wanted):
        for test in self.tests:
            if test not in self.reasons and wanted(test):
                self.reasons[test] = path

    def source(self, path, hunks):
        """A source file with tests in it, or one of a program that a test runs."""
        pairs = touched_bodies(source_text.read(self.root, path), hunks)
        if pairs:
            self.add(path, lambda test: is_gtest(test, self.tree, path, pairs))
        if path.startswith("tests/") or path.endswith("_fuzz.cc"):
            programs = self.tree.programs(path)
            self.add(path, lambda test: not test.gtest and any(os.path.basename(part) in programs for part in test.command))

    def named(self, path):
        """A file under tests/ that commands name, or text cases and programs that commands name."""
        def wanted(test):
            parts = parts_in_tests(self.root, test)
            scripts = [part for part in parts if part.endswith((".case", ".py")) and os.path.isfile(os.path.join(self.root, part))]
            return any(path == part or path.startswith(part + "/") for part in parts) or any(
                names(self.root, script, path) for script in scripts)

        self.add(path, wanted)


def select(root, build, tests, changed):
    """{test: path that touches it} for the tests that a change touches; `changed` as changes() gives it."""
    tree = Tree(root, build)
    selection = Selection(root, tests, tree)
    for path, hunks in sorted(changed.items()):
        if not path.startswith(("src/", "tests/")) or not os.path.isfile(os.path.join(root, path)):
            continue
        users = tree.includers(path) if is_helper(path) else set()
        for source in sorted(users):
            selection.source(source, None)
        if path.endswith(SOURCES) and (path.startswith("tests/") or path.endswith(("_test.cc", "_fuzz.cc"))):
            selection.source(path, hunks)
        for part in sorted({path} | users):
            if part.startswith("tests/"):
                selection.named(part)
    return selection.reasons
