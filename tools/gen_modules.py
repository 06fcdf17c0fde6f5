#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the modules and their arrows, from src/layers.txt, into docs/images/modules.svg: gen_modules.py [--check]

A module stands above those that it includes. Arrows that follow from others are left out. With --check nothing is written; the status
is 1 if the picture is not as it would be.
"""
import html
import math
import os
import re
import sys

sys.dont_write_bytecode = True
from generated import write_or_check  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PICTURE = os.path.join(ROOT, "docs/images/modules.svg")
CHAR, BOX_HEIGHT, GAP, ROW_HEIGHT, MARGIN = 7.2, 26, 16, 78, 20
ROUNDS = 24  # of ordering
STYLE = """text{font:12px ui-monospace,monospace;fill:#1b1f24}rect{fill:#eef3f8;stroke:#6b7c93}path{fill:none;stroke:#8a97a8;stroke-width:1}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#1d2733;stroke:#7d8ea3}path{stroke:#5d6b7d}}"""


def read_modules():
    """Module -> those that it may include; only modules that are there."""
    arrows = {}
    with open(os.path.join(ROOT, "src/layers.txt"), encoding="utf-8") as file:
        for line in file:
            found = re.match(r"([a-z][\w/]*):\s*([^#]*)", line)
            if found and os.path.isdir(os.path.join(ROOT, "src", found.group(1))):
                arrows[found.group(1)] = found.group(2).split()
    return {module: [below for below in all_below if below in arrows] for module, all_below in arrows.items()}


def reached(arrows, module):
    out = set()
    for below in arrows[module]:
        out |= {below} | reached(arrows, below)
    return out


def direct(arrows):
    """The arrows that do not follow from others."""
    return {module: [below for below in all_below
                     if not any(below in reached(arrows, other) for other in all_below if other != below)]
            for module, all_below in arrows.items()}


def heights(arrows):
    known = {}

    def height(module):
        if module not in known:
            known[module] = 1 + max((height(below) for below in arrows[module]), default=-1)
        return known[module]

    for module in arrows:
        height(module)
    return known


def ordered_rows(arrows, level):
    """Rows from the ground up; within a row a module stands near to what it is joined with."""
    rows = [sorted(module for module in arrows if level[module] == n) for n in range(max(level.values()) + 1)]
    neighbours = {module: set(arrows[module]) | {other for other in arrows if module in arrows[other]} for module in arrows}
    for turn in range(ROUNDS):
        place = {module: (index + 0.5) / len(row) for row in rows for index, module in enumerate(row)}
        for row in rows if turn % 2 else reversed(rows):
            # fsum: a set has its members in another order each time, and a sum of floats with it.
            row.sort(key=lambda module: (math.fsum(place[n] for n in neighbours[module]) / max(1, len(neighbours[module])), module))
            place.update({module: (index + 0.5) / len(row) for index, module in enumerate(row)})
    return rows


def width_of(module):
    return CHAR * len(module) + 18


def picture():
    arrows = direct(read_modules())
    level = heights(arrows)
    rows = ordered_rows(arrows, level)
    total = max(sum(width_of(module) + GAP for module in row) for row in rows) + 2 * MARGIN
    height = len(rows) * ROW_HEIGHT + 2 * MARGIN - (ROW_HEIGHT - BOX_HEIGHT)
    center, top = {}, {}
    for n, row in enumerate(rows):
        free = total - sum(width_of(module) for module in row)
        x = free / (len(row) + 1)
        for module in row:
            center[module] = x + width_of(module) / 2
            top[module] = height - MARGIN - BOX_HEIGHT - n * ROW_HEIGHT
            x += width_of(module) + free / (len(row) + 1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {height:.0f}" role="img" aria-label="modules and their arrows">',
           f"<style>{STYLE}</style>"]
    for module, all_below in sorted(arrows.items()):
        for below in all_below:
            x1, y1, x2, y2 = center[module], top[module] + BOX_HEIGHT, center[below], top[below]
            bend = (y2 - y1) / 2
            out.append(f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"/>')
    for module in sorted(arrows):
        x, w = center[module] - width_of(module) / 2, width_of(module)
        out.append(f'<rect x="{x:.0f}" y="{top[module]:.0f}" width="{w:.0f}" height="{BOX_HEIGHT}" rx="5"/>')
        out.append(f'<text x="{center[module]:.0f}" y="{top[module] + 17:.0f}" text-anchor="middle">{html.escape(module)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PICTURE, picture(), "tools/gen_modules.py"))
