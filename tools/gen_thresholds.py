#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the thresholds of the modules that judge into docs/thresholds.md: gen_thresholds.py [--check]

The rows are those of src/MODULE/thresholds.inc. With --check nothing is written; the status is 1 if the page is not as it would be.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
from generated import write_or_check  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/thresholds.md")
MODULES = (("stats", "the comparison of equal members, that `diagnose`, `watch`, `collect` and `detect` share, [diagnosis.md](diagnosis.md)"),
           ("diagnose", "the verdicts of `kansoku diagnose`, [diagnosis.md](diagnosis.md)"),
           ("diff", "what `kansoku diff` calls a change, [diff.md](diff.md)"),
           ("detect", "the incidents of `kansoku watch`, [watch-detection.md](watch-detection.md), the windows of `profile --watch`,\n"
            "[detection.md](detection.md), and the scores of `kansoku detect`, [detect.md](detect.md)"),
           ("incident", "which incidents are one, [watch-detection.md](watch-detection.md#one-incident-for-a-cause-and-its-effects)"),
           ("gpu/activity", "the findings of `kansoku cuda report`, [cuda-report.md](cuda-report.md)"),
           ("infer", "the findings of `kansoku llm report`, [llm.md](llm.md)"),
           ("capture/cuda", "what `kansoku hang` and `kansoku watch` call stuck, [cuda.md](cuda.md#stuck-kernels)"))
ROWS_MAX = 80  # of one module: more is more than a reader can judge
ROW = re.compile(r"""KANSOKU_THRESHOLD\((\w+),\s*([^"]+),\s*"([^"]*)",\s*"([^"]*)",\s*"([^"]*)"\)|^//\ (.+)$""", re.MULTILINE | re.VERBOSE)
HEAD = """# Thresholds

The numbers that decide verdicts, incidents and exit statuses. `tools/gen_thresholds.py` prints them from the source. "Chosen" means: set
on no measurement. "So much", "so many", "less" and "fewer" are meant beside the value, in its unit. Resamples, draws and bounds of memory
are no thresholds. Not here yet: the numbers in the list of [known gaps](known-gaps.md#thresholds).
"""


def value_text(literal):
    """A number as people write it: std::size_t{5} as 5, std::int64_t{1'000'000} as 1,000,000, Nanos{std::chrono::minutes{5}} as 5 minutes."""
    unit = re.search(r"std::chrono::(\w+)\{", literal)
    number = re.sub(r".*\{([^{}]*)\}+", r"\1", literal).strip().replace("'", ",")
    number = re.sub(r"\.0$", "", number)
    return f"{number} {unit.group(1)}" if unit else number


def page():
    out = [HEAD]
    for module, judged in MODULES:
        with open(os.path.join(ROOT, "src", module, "thresholds.inc"), encoding="utf-8") as file:
            text = file.read().split("\n\n", 1)[1]  # without what is said to programmers
        count = 0
        section = [f"\n## {module}\n", f"Rows of `src/{module}/thresholds.inc`, for {judged}."]
        for found in ROW.finditer(text):
            name, value, unit, decides, set_on, title = found.groups()
            if title:
                section.append(f"\n### {title}\n\n| name | value | unit | decides | set on |\n|---|---|---|---|---|")
                continue
            count += 1
            section.append(f"| {name} | {value_text(value)} | {unit} | {decides} | {set_on} |")
        if text.count("KANSOKU_THRESHOLD(") != count:
            raise SystemExit(f"src/{module}/thresholds.inc: {text.count('KANSOKU_THRESHOLD(')} rows, {count} understood")
        if count > ROWS_MAX:
            raise SystemExit(f"src/{module}/thresholds.inc: {count} rows, at most {ROWS_MAX}: merge what says the same")
        out += section
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), "tools/gen_thresholds.py"))
