# SPDX-License-Identifier: Apache-2.0
"""The compiler's command of each source file of a build folder, also of those that it compiles together."""
import json
import os
import re
import shlex

TARGET = re.compile(r"CMakeFiles/([^/]+)\.dir/")
UNITY = re.compile(r"/Unity/unity_\d+_c(?:xx)?\.cx?x?$")
TOGETHER = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
WITH_VALUE = ("-o", "-MT", "-MF", "-MQ")


def entries(build):
    """(source path, target, command words, folder) of each file and target; none where the folder is not configured."""
    path = os.path.join(build, "compile_commands.json")
    if not os.path.isfile(path):
        return
    with open(path, encoding="utf-8") as file:
        listed = json.load(file)
    for entry in listed:
        words = entry.get("arguments") or shlex.split(entry.get("command", ""))
        output = entry.get("output") or next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "-o"), "")
        target = TARGET.search(output)
        folder = entry.get("directory", build)
        sources = [os.path.join(folder, entry["file"])]
        if UNITY.search(sources[0]) and os.path.isfile(sources[0]):
            with open(sources[0], encoding="utf-8") as file:
                sources = [os.path.normpath(os.path.join(os.path.dirname(sources[0]), name)) for name in TOGETHER.findall(file.read())]
        for source in sources:
            yield source, target.group(1) if target else "", words, folder


def flags(words):
    """The words of a command but for its compiler cache, its input and its outputs; the compiler is the first."""
    kept, skip = [], False
    for i, word in enumerate(words):
        if skip:
            skip = False
        elif word in WITH_VALUE:
            skip = True
        elif word == "-c":
            skip = True  # CMake's commands end with -c FILE
        elif word not in ("-MD", "-MMD") and not (i < 2 and os.path.basename(word) == "ccache"):
            kept.append(word)
    return kept


def targets(build, root):
    """{source, as a path in the tree: names of the targets that are made of it}."""
    found = {}
    for source, target, _, _ in entries(build):
        if target:
            found.setdefault(os.path.relpath(source, root), set()).add(target)
    return found
