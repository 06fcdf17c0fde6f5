#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each header under src/ compiles alone: check_headers.py [--root FOLDER] [--build FOLDER] [--changed] [--no-cache] [FILE...]

Every header is included by an otherwise empty C++ file, those of src/capture/shim by one of C. Those of src/wire are included by a C file
too, for the host and for BPF.
Passes are remembered in build/check/headers.json by the content of the header, of all that it includes from src/, and of the command;
ccache, where it is installed, remembers them for other trees. So a second run is quick. With --changed only headers whose code changed since the base, or that include one of these, are looked at:
the others were when they changed, and `make test-all` looks at all. A header that needs a generated one, or a
library that is not installed, is skipped with the reason.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import changed_tests
import source_text

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
MISSING = re.compile(r"fatal error: '?([^':\n]+)'?(?: file not found|: No such file or directory)")
LIBRARIES = "src/third_party.txt"
BPF_INCLUDES = "/usr/include/x86_64-linux-gnu"
TOOLKIT = "share/softgpu/toolkit/include"  # cuda.h of the software device
CCACHE = [found] if (found := shutil.which("ccache")) else []


class Language:
    """One way in which a header must compile."""

    def __init__(self, name, programs, flags):
        self.name, self.flags = name, flags
        self.program = next((found for program in programs if (found := shutil.which(program))), None)
        self.wanted = programs[0]
        self.version = ""
        if self.program:
            out = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=False).stdout
            self.version = out.partition("\n")[0]


def languages_of(path, languages):
    if path.startswith("src/capture/shim/"):
        return languages[1:2]
    return languages if path.startswith("src/wire/") else languages[:1]


class Tree:
    """Where includes resolve, and the hash of a header with everything of ours below it."""

    def __init__(self, root, build):
        self.root, self.folders = root, ["src", os.path.join(build, "gen"), os.path.join(build, "gen/softcuda/runtime"), TOOLKIT]
        self.texts = {}
        self.libraries = tuple(re.findall(r"^([^\s#:]+):", source_text.read(root, LIBRARIES), re.MULTILINE)) if os.path.isfile(
            os.path.join(root, LIBRARIES)) else ()

    def resolve(self, include):
        for folder in self.folders:
            path = os.path.normpath(os.path.join(self.root, folder, include))
            if os.path.isfile(path):
                return path
        return None

    def includes_of(self, path):
        if path not in self.texts:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            found = INCLUDE.findall(source_text.strip(text, keep_strings=True))
            self.texts[path] = (hashlib.sha256(text.encode()).digest(), found)
        return self.texts[path]

    def reaches(self, path, wanted):
        """Whether a header is one of `wanted`, or includes one, by whatever way."""
        return bool(wanted & self.closure(path)[0])

    def closure(self, path):
        """(a header and all of ours that it includes, an include of ours that is nowhere or None)."""
        waiting, seen, missing = [os.path.join(self.root, path)], set(), None
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            for include in self.includes_of(current)[1]:
                target = self.resolve(include)
                if target is None:
                    missing = missing or include
                else:
                    waiting.append(target)
        return seen, missing

    def digest(self, path, command):
        """The hash for the cache, and an include of ours that is nowhere (it is generated) or None."""
        total = hashlib.sha256(repr(command).encode())
        seen, missing = self.closure(path)
        for current in sorted(seen):
            total.update(self.includes_of(current)[0])
        return total.hexdigest(), missing


class Job:
    def __init__(self, tree, path, language):
        self.path, self.language, self.root, self.libraries = path, language, tree.root, tree.libraries
        folders = ["-I" + tree.folders[0], *(word for folder in tree.folders[1:] for word in ("-isystem", folder))]
        self.command = [language.program or language.wanted, *language.flags, "-O0", "-Wall", "-Wextra", "-Werror", *folders]
        self.digest, self.missing = tree.digest(path, [self.command, language.version])
        self.key = f"{path} {language.name}"

    def run(self):
        """(problem, reason to skip): both None if it compiles."""
        if self.language.program is None:
            return None, f"{self.language.wanted} not found"
        text = f'#include "{self.path[len("src/"):]}"\n'
        # ccache knows files that are compiled into files.
        with tempfile.TemporaryDirectory(prefix="kansoku-header-") as folder:
            source = os.path.join(folder, "header.cc")
            with open(source, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([*CCACHE, *self.command, "-c", source, "-o", os.path.join(folder, "header.o")],
                                  capture_output=True, text=True, cwd=self.root, check=False)
        if done.returncode == 0:
            return None, None
        absent = MISSING.search(done.stderr)
        if absent and absent.group(1) == self.missing:
            return None, f'"{self.missing}" is generated: build first'
        if absent and not self.missing and absent.group(1).startswith(self.libraries):
            return None, f"<{absent.group(1)}> is not installed"
        repeat = f"echo '{text.strip()}' | {' '.join(self.command)} -fsyntax-only -"
        return f"{self.path}: does not compile alone as {self.language.name}; {repeat}\n{indent(done.stderr)}", None


def with_new_headers(root, base, headers):
    """Paths of headers, from the root of the file system, that have new code."""
    return {os.path.join(root, path) for path in changed_tests.with_new_code(root, base, headers)}


def indent(text, lines_max=12):
    lines = text.rstrip().splitlines()
    more = [f"  ... {len(lines) - lines_max} more lines"] if len(lines) > lines_max else []
    return "\n".join([f"  {line}" for line in lines[:lines_max]] + more)


def load_cache(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def save_cache(path, passed):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(dict(sorted(passed.items())), file, indent=0)
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    parser.add_argument("--build", default="build/release", help="build folder with generated headers, below the root [%(default)s]")
    parser.add_argument("--changed", action="store_true", help="headers that a change of code reaches [all]; all where there is no history")
    parser.add_argument("--no-cache", action="store_true", help="compile every header anew")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", metavar="FILE", help="headers, as paths in the tree [all under src/]")
    options = parser.parse_args()
    root = os.path.abspath(options.root)
    languages = [
        Language("C++", ["c++", "g++", "clang++"], ["-x", "c++", "-std=c++20", "-march=x86-64-v2"]),
        Language("C", ["cc", "gcc", "clang"], ["-x", "c", "-std=c11", "-D_GNU_SOURCE"]),
        Language("BPF", ["clang", "clang-14"], ["-x", "c", "-std=gnu11", "-target", "bpf", f"-I{BPF_INCLUDES}"]),
    ]
    headers = options.files or [path for path in source_text.tree_files(root) if path.startswith("src/") and path.endswith(".h") and not path.endswith(".bpf.h")]
    tree = Tree(root, options.build)
    base = changed_tests.default_base(root) if options.changed else None
    if base:
        changed = with_new_headers(root, base, headers)
        headers = [path for path in headers if tree.reaches(path, changed)]
    jobs = [Job(tree, path, language) for path in headers for language in languages_of(path, languages)]
    cache_path = os.path.join(root, "build", "check", "headers.json")
    cache = {} if options.no_cache else load_cache(cache_path)
    todo = [job for job in jobs if cache.get(job.key) != job.digest]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(Job.run, todo))
    problems = [problem for problem, _ in results if problem]
    skipped = [f"{job.key}: skipped: {reason}" for job, (_, reason) in zip(todo, results) if reason]
    passed = {job.key: job.digest for job, result in zip(todo, results) if result == (None, None)}
    save_cache(cache_path, {**{job.key: job.digest for job in jobs if cache.get(job.key) == job.digest}, **passed})
    for line in skipped:
        print(line)
    known = len(jobs) - len(todo)
    return source_text.report("headers", problems, f"{len(headers)} headers, {len(passed)} compiled, {known} unchanged, {len(skipped)} skipped")


if __name__ == "__main__":
    sys.exit(main())
