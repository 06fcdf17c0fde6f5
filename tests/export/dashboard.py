#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every expression of the dashboards asks for metrics that are exported: dashboard.py EXPORTER [--selftest]

EXPORTER is tests/export/exporter, which names them all.
"""
import json
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "share" / "dashboards"
NAME = re.compile(r"\bkansoku_[a-zA-Z0-9_]+")
LABELS = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? ")


def exported(exporter):
    """Names of metrics with the names of their labels."""
    text = subprocess.run([exporter, "text"], check=True, capture_output=True, text=True).stdout
    samples = [SAMPLE.match(line) for line in text.splitlines() if line and not line.startswith("#")]
    return {sample[1]: set(re.findall(r'(\w+)="', sample[2] or "")) for sample in samples}


def targets(panels):
    for panel in panels:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", []))
        yield from targets(panel.get("panels", []))


def expressions(dashboard):
    yield from targets(dashboard["panels"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]


def problems(dashboard, names):
    out = []
    if dashboard.get("schemaVersion", 0) < 36:
        out.append("schemaVersion: below 36")
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        out.append("panels: an id twice")
    sources = {panel["datasource"]["uid"] for panel in dashboard["panels"] if "datasource" in panel}
    if sources != {"${datasource}"}:
        out.append(f"panels: data sources {sorted(sources)}, not the variable")
    for title, expression in expressions(dashboard):
        found = NAME.findall(expression)
        if not found:
            out.append(f"{title}: {expression}: names no metric")
        out.extend(f"{title}: {name} is not exported" for name in found if name not in names)
        for name, labels in re.findall(r"(\w+)\{([^}]*)\}", expression):
            wrong = set(LABELS.findall(labels)) - names.get(name, set())
            out.extend(f"{title}: {name} has no label {label}" for label in sorted(wrong))
    return out


def main():
    names = exported(sys.argv[1])
    paths = sorted(FOLDER.glob("*.json"))
    if not paths:
        sys.exit(f"no dashboards in {FOLDER}")
    count = 0
    for path in paths:
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        found = problems(dashboard, names)
        if found:
            sys.exit("\n".join(f"{path.name}: {problem}" for problem in found))
        count += sum(1 for _ in expressions(dashboard))
        # The check itself can fail: without any one of its metrics the dashboard is refused.
        used = {name for _, expression in expressions(dashboard) for name in NAME.findall(expression)}
        for name in used:
            if not problems(dashboard, {key: labels for key, labels in names.items() if key != name}):
                sys.exit(f"{path.name}: nobody would notice that {name} is gone")
        for name in {name for _, expression in expressions(dashboard) for name in re.findall(r"(\w+)\{", expression)}:
            if not problems(dashboard, names | {name: set()}):
                sys.exit(f"{path.name}: nobody would notice that {name} has no labels")
    print(f"{len(paths)} dashboards, {count} expressions, {len(names)} exported names")


if __name__ == "__main__":
    main()
