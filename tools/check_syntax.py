#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Changed sources compile by themselves: check_syntax.py [--root FOLDER] [--build FOLDER] [--base COMMIT] [--most N] [FILE...]

The build compiles the files of a module together, where one file may live on the includes of another. This check asks the compiler
for the syntax of files that changed since the base, and then of those that include a changed header, in a process of its own, with the
flags of its target. A change of comments alone is none. At most N files are looked at [60], the includers in the folders of changed
headers first; the line of counts says how many were left to `make test-all`, which compiles every file. Passes are remembered in
build/check/syntax.json. Exit status: 0 passed, 1 failed, 77 nothing is configured, or there is no history.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import changed_tests  # noqa: E402
import compile_commands  # noqa: E402
import source_text  # noqa: E402

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
SOURCES, HEADERS = (".cc", ".c"), (".h", ".inc")
MOST = 60  # some two seconds of processor time each
GENERATED = re.compile(r"fatal error: ([\w./-]+): No such file")
LINES_SHOWN = 12
ALONE = ["-Wshadow"]  # of warnings that the build cannot have where files compile together


class Includes:
    """Headers of ours that a file sees, and the hash of all of it."""

    def __init__(self, root):
        self.root, self.direct, self.seen = root, {}, {}

    def of(self, path):
        if path not in self.direct:
            full = os.path.join(self.root, path)
            with open(full, encoding="utf-8", errors="replace") as file:
                text = file.read()
            names = (candidate for name in INCLUDE.findall(text)
                     for candidate in ("src/" + name, os.path.normpath(os.path.join(os.path.dirname(path), name))))
            self.direct[path] = (hashlib.sha256(text.encode()).digest(), [n for n in names if os.path.isfile(os.path.join(self.root, n))])
        return self.direct[path]

    def closure(self, path):
        if path not in self.seen:
            found, waiting = set(), [path]
            while waiting:
                for name in self.of(waiting.pop())[1]:
                    if name not in found:
                        found.add(name)
                        waiting.append(name)
            self.seen[path] = found
        return self.seen[path]

    def digest(self, path, command):
        total = hashlib.sha256(repr(command).encode())
        for name in sorted({path} | self.closure(path)):
            total.update(self.of(name)[0])
        return total.hexdigest()


def wanted(units, includes, changed, most):
    """(files to look at, how many are left out)."""
    own = sorted(path for path in changed if path in units)
    headers = {path for path in changed if path.endswith(HEADERS)}
    users = [path for path in sorted(units) if path not in changed and headers & includes.closure(path)]
    folders = {os.path.dirname(path) for path in headers}
    users.sort(key=lambda path: (os.path.dirname(path) not in folders, path))
    return (own + users)[:most], max(0, len(own + users) - most)


def look(job):
    path, command, folder = job
    done = subprocess.run([*command, *ALONE, "-fsyntax-only", path], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    if absent := GENERATED.search(done.stderr):
        print(f"{path}: skipped: {absent.group(1)} is not there; build first, and the build says so if nothing makes it")
        return ""
    lines = done.stderr.rstrip().splitlines()
    return "\n".join([f"{path}: does not compile by itself"] + [f"  {line}" for line in lines[:LINES_SHOWN]])


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    parser.add_argument("--build", default="build/release", help="configured build folder, below the root [%(default)s]")
    parser.add_argument("--base", help="commit to compare with [as for tools/check]")
    parser.add_argument("--most", type=int, default=MOST, help="files to look at [%(default)s]")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", metavar="FILE", help="sources, as paths in the tree [those that changed]")
    options = parser.parse_args()
    root = os.path.abspath(options.root)
    units = {}
    for source, _, words, folder in compile_commands.entries(os.path.join(root, options.build)):
        path = os.path.relpath(source, root)
        if path.endswith(SOURCES) and not path.startswith("build/") and os.path.isfile(source):
            units.setdefault(path, (source, compile_commands.flags(words), folder))
    if not units:
        print(f"syntax: {options.build} is not configured (cmake --preset release)")
        return source_text.SKIP_EXIT
    base = options.base or changed_tests.default_base(root)
    changed = changed_tests.changes(root, base) if base and not options.files else options.files
    if changed is None:
        print("syntax: no git history to tell what changed")
        return source_text.SKIP_EXIT
    sources = sorted(path for path in changed if path.endswith(SOURCES + HEADERS))
    changed = set(sources) if options.files else changed_tests.with_new_code(root, base, sources)
    includes = Includes(root)
    paths, left = wanted(units, includes, changed, options.most)
    cache_path = os.path.join(root, "build", "check", "syntax.json")
    cache = load(cache_path)
    digests = {path: includes.digest(path, units[path][1]) for path in paths}
    todo = [path for path in paths if cache.get(path) != digests[path]]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(look, (units[path] for path in todo)))
    cache.update({path: digests[path] for path, result in zip(todo, results) if result is None})
    os.makedirs(os.path.dirname(cache_path), exist_ok=True)
    with open(cache_path + ".new", "w", encoding="utf-8") as file:
        json.dump(dict(sorted(cache.items())), file, indent=0)
    os.replace(cache_path + ".new", cache_path)
    problems = [result.replace(root + os.sep, "") for result in results if result]
    return source_text.report("syntax", problems, f"{len(paths)} files, {len(paths) - len(todo)} unchanged, {left} left to test-all")


if __name__ == "__main__":
    sys.exit(main())
