#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Names of anonymous namespaces are unique within a module: check_names.py [--root FOLDER] [--list]

The build compiles the files of a module together, and its unit tests too, each group by itself: names local to one file are seen by
the others of its group. Looked at are functions, variables, types, aliases and enumerators at the scope of an anonymous namespace, and
static functions beside it. A name that two files of a group declare is a problem, overloads included: a call could mean the other one.
So is a type of a named namespace that two files of src/ define: the linker keeps one of its functions, for both.
"""
import collections
import os
import re
import sys

sys.dont_write_bytecode = True
import functions  # noqa: E402
import source_text  # noqa: E402

COMPILED_ALONE = re.compile(r"_(?:bench|fuzz)\.cc$|\.bpf\.h$")
INSTEAD = re.compile(r"_off\.cc$")  # in the place of another file, where the build leaves a library out
OF_TESTS = re.compile(r"_(?:test|for_test)\.cc$")
MACROS = {"INSTANTIATE_TEST_SUITE_P", "STAT"}  # look like functions; the names in their arguments are unique anyway
ALIAS = re.compile(r"\busing\s+(\w+)\s*=")
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[.*?\]\]\s*)?(\w+)")
VARIABLE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|@init|$)")
IS_ANONYMOUS = re.compile(r"\bnamespace\s*$")
UNSCOPED_ENUM = re.compile(r"\s*enum\b(?!\s+(?:class|struct)\b)")
NAMESPACE = re.compile(r"\bnamespace\s+([\w:]+)\s*$")
IS_STATIC = re.compile(r"\bstatic\b")
SPECIALISED = re.compile(r"\btemplate\s*<\s*>|>\s*(?::[^:]|$)")
NO_DECLARATION = re.compile(r"^\s*(?:using\s+namespace|using\s+[\w:]+\s*$|static_assert|friend|namespace)\b")


class LocalNames(functions.Scanner):
    """The names that a file keeps to itself, and the types that it defines for all, each with the line of its declaration."""

    def __init__(self, text):
        super().__init__(text)
        self.names, self.anonymous, self.is_enum = {}, [], False
        self.types, self.namespaces = {}, []

    def is_local(self):
        return bool(self.anonymous) and self.anonymous[-1] == len(self.stack)

    def is_at_namespace(self):
        return all(entry[0] == "namespace" for entry in self.stack)

    def add(self, header, name, line):
        """What `header` declares: `name` if it is known (of a body), else the alias, type, variable or function in it."""
        text = functions.clean(header).strip()
        is_static = self.is_at_namespace() and IS_STATIC.search(text) is not None
        if not text or NO_DECLARATION.match(text) or not (self.is_local() or is_static):
            return
        names = [name] if name else self.declared(text)
        for one in names:
            if one and "::" not in one and one != "operator_":
                self.names.setdefault(one, line)

    @staticmethod
    def declared(text):
        """The names of a declaration without a body."""
        flat, groups = functions.outline(text)
        before = flat.split("=")[0]
        if found := ALIAS.search(text):
            return [found.group(1)]
        if "(" in before:
            return [groups[0][0]] if groups else []
        if found := TYPE.match(text):
            return [found.group(1)]
        return [found.group(1) for part in flat.split(",") if (found := VARIABLE.search(part.split("=")[0] + "="))]

    def open(self, line):
        is_anonymous = False
        if self.in_declarations() and not self.parens:
            kind, name = functions.classify(self.header)
            if kind in ("function", "type"):
                self.add(self.header, name, line)
            is_anonymous = kind == "namespace" and IS_ANONYMOUS.search(self.header) is not None
            if kind == "type" and name and not self.anonymous and self.is_at_namespace() and not SPECIALISED.search(self.header):
                self.types["::".join([path for path, _ in self.namespaces] + [name])] = line
            if named := kind == "namespace" and NAMESPACE.search(functions.clean(self.header)):
                self.namespaces.append((named.group(1), len(self.stack) + 1))
            self.is_enum = kind == "type" and UNSCOPED_ENUM.match(self.header) is not None and self.is_local()
        super().open(line)
        if is_anonymous:
            self.anonymous.append(len(self.stack))

    def close(self, line):
        if self.is_local():
            self.anonymous.pop()
        elif self.is_enum:
            for part in self.header.split(","):
                if found := re.match(r"\s*(\w+)", part):
                    self.names.setdefault(found.group(1), line)
        self.is_enum = False
        if self.namespaces and self.namespaces[-1][1] == len(self.stack):
            self.namespaces.pop()
        super().close(line)

    def declare(self, char, line):
        if char == ";" and self.parens == 0:
            self.add(self.header, "", line)
        super().declare(char, line)


def modules(root):
    """The modules of src/layers.txt, the longest name first."""
    lines = source_text.read(root, "src/layers.txt").splitlines()
    return sorted((line.split(":")[0] for line in lines if re.match(r"[a-z]", line)), key=len, reverse=True)


def scan(findings, root):
    known = modules(root)
    places = collections.defaultdict(dict)  # (module, name, whether of its tests) -> path -> line
    types = collections.defaultdict(dict)  # qualified name -> path -> line
    count = 0
    for path in source_text.tree_files(root):
        if not (path.startswith("src/") and path.endswith((".cc", ".h"))) or COMPILED_ALONE.search(path):
            continue
        module = next((name for name in known if path.startswith(f"src/{name}/")), None)
        if module is None:
            continue
        count += 1
        scanner = LocalNames(source_text.read(root, path))
        scanner.scan()
        for name, line in scanner.types.items() if not INSTEAD.search(path) else ():
            types[name][path] = line
        for name, line in scanner.names.items() if path.endswith(".cc") else ():
            if name not in MACROS:
                places[module, name, OF_TESTS.search(path) is not None][path] = line
    for (module, name, _), files in sorted(places.items()):
        if len(files) > 1:
            where = ", ".join(f"{os.path.relpath(path, 'src/' + module)}:{line}" for path, line in files.items())
            findings.add(f"src/{module}", f"`{name}` is local to more than one file: {where}", None)
    for name, files in sorted(types.items()):
        if len(files) > 1:
            where = ", ".join(f"{path}:{line}" for path, line in files.items())
            findings.add("src", f"`{name}` is defined by more than one file: {where}", None)
    return count


if __name__ == "__main__":
    sys.exit(source_text.check_lines("names", __doc__, scan))
