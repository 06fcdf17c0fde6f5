#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""BPF links: links.py of PID prints the numbers of those that a process holds; links.py left FILE, from `bpftool -j link list`, which
of the numbers in FILE there still are."""
import json
import os
import re
import sys

LINK = re.compile(r"^link_id:\s*(\d+)$", re.MULTILINE)


def held_by(pid):
    folder = f"/proc/{pid}/fdinfo"
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            yield from LINK.findall(file.read())


if sys.argv[1] == "of":
    print("\n".join(held_by(sys.argv[2])))
else:
    with open(sys.argv[2], encoding="utf-8") as file:
        known = {int(line) for line in file.read().split()}
    left = [link for link in json.load(sys.stdin) if link["id"] in known]
    print("\n".join(map(str, left)) or "none of them is left")
