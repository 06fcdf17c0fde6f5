#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which module includes which: check_layers.py [--root FOLDER]

Reads src/layers.txt (arrows between modules), src/third_party.txt (which module owns which library) and every #include under
src/. A file belongs to the longest folder listed. It fails on
  - an arrow that src/layers.txt does not list, and a module listed above one that it names (so there are no cycles)
  - a listed arrow that no #include uses, and a listed module without sources: src/layers.txt says what is, not what may come
  - a file in a folder that is not listed
  - a header of another module's internal/, and a *_for_test.h in production code
  - a third-party header outside the modules that own it, or in a public header
  - DEPS of a kansoku_module() in CMake that is no arrow
  - a module with sources but without README.md, or with one over 40 lines, or one that does not begin `# module: words`
  - a folder with more than 30 files, tests not counted, unless the module's README.md has a line "One folder: REASON"
Files *_test, *_bench and *_fuzz (so *_for_test too) may include what they like.
"""
import argparse
import collections
import os
import re
import sys

import source_text

README_LINES_MAX, FOLDER_FILES_MAX = 40, 30
ONE_FOLDER = re.compile(r"^One folder: \S.*", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
CMAKE_MODULE = re.compile(r"kansoku_module\(\s*([\w/]+)([^)]*)\)")
C_LIBRARY = set(
    """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbool
    stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
    aio byteswap cpuid cxxabi dirent dlfcn elf endian execinfo fcntl fnmatch ftw getopt glob grp ifaddrs immintrin langinfo libgen link
    malloc mntent mqueue netdb paths poll pthread pwd sched semaphore spawn strings syscall syslog termios ucontext unistd
    unwind utime x86intrin""".split()
)
SYSTEM_FOLDERS = ("arpa/", "asm/", "asm-generic/", "linux/", "net/", "netinet/", "sys/")


def is_system(header):
    """Whether a <header> comes with the compiler, the C library or the kernel."""
    if header.startswith(SYSTEM_FOLDERS):
        return True
    if header.endswith(".h"):
        return header[:-2] in C_LIBRARY
    return "/" not in header and "." not in header


class Table:
    """A file of lines `name: word word  # comment`, in order; problems with its form are collected."""

    def __init__(self, root, path, problems):
        self.path, self.entries, self.lines = path, {}, {}
        if not os.path.isfile(os.path.join(root, path)):
            problems.append(f"{path}:1: not found")
            return
        for number, line in enumerate(source_text.read(root, path).splitlines(), 1):
            line = line.split("#", 1)[0].strip()
            if not line:
                continue
            name, colon, words = line.partition(":")
            name = name.strip()
            if not colon or not name or " " in name:
                problems.append(f"{path}:{number}: expected `name: word word`")
            elif name in self.entries:
                problems.append(f"{path}:{number}: {name} is listed twice (first in line {self.lines[name]})")
            else:
                self.entries[name], self.lines[name] = words.split(), number


class Layers:
    """The arrows of src/layers.txt and the owners of src/third_party.txt."""

    def __init__(self, root, problems):
        self.arrows = Table(root, "src/layers.txt", problems)
        self.owners = Table(root, "src/third_party.txt", problems)
        self.modules = self.arrows.entries
        seen = set()
        for name, targets in self.modules.items():
            seen.add(name)
            for target in targets:
                where = f"src/layers.txt:{self.arrows.lines[name]}: {name} -> {target}"
                if target not in self.modules:
                    problems.append(f"{where}: no such module")
                elif target not in seen or target == name:
                    problems.append(f"{where}: names a lower line ({self.arrows.lines[target]}); only modules above are allowed")
        for name, words in self.owners.entries.items():
            for word in words:
                if word not in ("*", "public", "tests") and word not in self.modules:
                    problems.append(f"src/third_party.txt:{self.owners.lines[name]}: {name}: no module {word}")

    def module_of(self, path):
        """The longest listed folder that holds `path` (without src/), or None."""
        folder = os.path.dirname(path)
        while folder and folder not in self.modules:
            folder = os.path.dirname(folder)
        return folder or None

    def owner_of(self, header):
        """The words of the longest entry that matches a third-party header, or None."""
        best = ""
        for name in self.owners.entries:
            if (header == name or (name.endswith("/") and header.startswith(name))) and len(name) > len(best):
                best = name
        return self.owners.entries.get(best)

    def check_own(self, module, header):
        """Why `module` may not include the Kansoku header, or None."""
        target = self.module_of(header)
        if target is None:
            return f'{module} -> "{header}": in no module of src/layers.txt (paths begin at src/, and "..." is only for ours)'
        if target != module and target not in self.modules[module]:
            allowed = " ".join(self.modules[module]) or "no module"
            return f'{module} -> {target}: "{header}" is not allowed; {module} may name: {allowed}'
        if target != module and "internal" in header.split("/"):
            return f'{module} -> {target}: "{header}" is internal to {target}'
        if source_text.TEST_FILE.search(header):
            return f'{module} -> {target}: "{header}" is for tests only'
        return None

    def check_third_party(self, module, path, header):
        """Why the file may not include the third-party header, or None."""
        owners = self.owner_of(header)
        if owners is None:
            return f"{module} -> <{header}>: not in src/third_party.txt; name its owner there (and its pin in third_party/pins.txt)"
        modules = [word for word in owners if word not in ("public", "tests")]
        if module not in modules and "*" not in modules:
            return f"{module} -> <{header}>: not allowed; it belongs to: {' '.join(modules) or 'tests'}"
        if path.endswith(".h") and "public" not in owners and "internal" not in path.split("/"):
            return f"{module} -> <{header}>: a third-party header in a public header; hide it in a .cc or in internal/"
        return None


def check_file(layers, root, path, used, problems):
    """The includes of one file under src/; adds its arrows to `used`. Returns how many includes there are."""
    inside = path[len("src/"):]
    module = layers.module_of(inside)
    if module is None:
        problems.append(f"{path}:1: in no module of src/layers.txt")
        return 0
    text = source_text.strip(source_text.read(root, path), keep_strings=True)
    count = 0
    for match in INCLUDE.finditer(text):
        count += 1
        if source_text.TEST_FILE.search(path):
            continue
        own, other = match.groups()
        why = None
        if own:
            used.add((module, layers.module_of(own)))
            why = layers.check_own(module, own)
        elif not is_system(other):
            why = layers.check_third_party(module, inside, other)
        if why:
            problems.append(f"{path}:{text.count(chr(10), 0, match.start(own and 1 or 2)) + 1}: {why}")
    return count


def check_used(layers, paths, used, problems):
    """A row for which there is no file, an arrow for which there is no #include."""
    present = {layers.module_of(path[len("src/"):]) for path in paths}
    for module, targets in layers.modules.items():
        where = f"src/layers.txt:{layers.arrows.lines[module]}: {module}"
        if module not in present:
            problems.append(f"{where}: no sources in src/{module}; the row comes with them")
            continue
        for target in targets:
            if target in present and (module, target) not in used:
                problems.append(f"{where} -> {target}: no #include uses this arrow; remove it (tests need none)")


def check_cmake(layers, root, path, problems):
    """The DEPS of every kansoku_module() in one CMakeLists.txt."""
    text = re.sub(r"#[^\n]*", "", source_text.read(root, path))
    for match in CMAKE_MODULE.finditer(text):
        module, rest = match.groups()
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        if module not in layers.modules:
            problems.append(f"{where}: kansoku_module({module}): not in src/layers.txt")
            continue
        words = rest.split()
        deps = words[words.index("DEPS") + 1:] if "DEPS" in words else []
        for dep in deps:
            if dep in ("LINK", "EXTRA_SOURCES", "EXCLUDE", "TEST_SOURCES"):
                break
            if dep not in [target.replace("/", "_") for target in layers.modules[module]]:
                problems.append(f"{where}: {module} -> {dep}: DEPS that is no arrow of src/layers.txt")


def check_readmes(layers, root, paths, problems):
    present = {layers.module_of(path[len("src/"):]) for path in paths} - {None}
    for module in sorted(present):
        readme = f"src/{module}/README.md"
        if not os.path.isfile(os.path.join(root, readme)):
            problems.append(f"{readme}:1: missing; every module has a page")
            continue
        lines = source_text.read(root, readme).splitlines()
        if len(lines) > README_LINES_MAX:
            problems.append(f"{readme}:{len(lines)}: {len(lines)} lines; at most {README_LINES_MAX}")
        if not re.match(rf"# {module}: \S", lines[0] if lines else ""):
            problems.append(f"{readme}:1: begins `# {module}: words`")
    return len(present)


def check_folders(layers, root, paths, problems):
    """A reader finds a file among thirty; more want folders of their own, or a reason."""
    folders = collections.defaultdict(list)
    for path in paths:
        if not source_text.TEST_FILE.search(path):
            folders[os.path.dirname(path)].append(path)
    for folder, held in sorted(folders.items()):
        count, module = len(held), layers.module_of(held[0][len("src/"):])
        readme = f"src/{module}/README.md"
        if count > FOLDER_FILES_MAX and not (os.path.isfile(os.path.join(root, readme)) and ONE_FOLDER.search(source_text.read(root, readme))):
            problems.append(f"{folder}: {count} files, at most {FOLDER_FILES_MAX}: split it by what a reader looks for, or give the reason in "
                            f"{readme} (One folder: ...)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="tree to check [this one]")
    root = parser.parse_args().root
    problems = []
    layers = Layers(root, problems)
    files = [path for path in source_text.tree_files(root) if path.startswith("src/")]
    sources = [path for path in files if path.endswith(source_text.SOURCE_SUFFIXES)]
    used, forms_hold = set(), not problems
    includes = sum(check_file(layers, root, path, used, problems) for path in sources)
    if forms_hold:
        check_used(layers, sources, used, problems)
    for path in files:
        if os.path.basename(path) == "CMakeLists.txt":
            check_cmake(layers, root, path, problems)
    modules = check_readmes(layers, root, sources, problems)
    check_folders(layers, root, sources, problems)
    return source_text.report("layers", problems, f"{includes} includes of {len(sources)} files in {modules} modules")


if __name__ == "__main__":
    sys.exit(main())
