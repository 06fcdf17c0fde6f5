#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Detection on windows that were recorded of a real job (tests/data/watch, made by thin.py): recorded.py KANSOKU

A model of eight minutes of healthy windows, then 25 planted faults, in the order in which they were planted. Detection was tuned on these
very windows: this keeps what was reached, it does not measure it."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
import score  # noqa: E402
from faults import kind_is_right  # noqa: E402
from replay import replay  # noqa: E402

DATA = os.path.join(kit.ROOT, "tests/data/watch")
LEARN, DELAY_MAX_S = "420s", 5.5
# Three faults fall into incidents that go on: steps had been 15 % longer since the fault before, or pages were still read back.
FOUND_MIN, KINDS_RIGHT_MIN = 22, 0.9


def main(report):
    kansoku = sys.argv[1]
    faults = kit.read_lines(os.path.join(DATA, "ddp_faults.truth.jsonl"))
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        clean, planted = (os.path.join(DATA, f"ddp_{name}.csv.gz") for name in ("clean", "faults"))
        healthy, _ = replay(kansoku, clean, "--job", "job", "--learn", LEARN, "--save", model)
        lines, _ = replay(kansoku, planted, "--job", "job", "--model", model)
        again, _ = replay(kansoku, planted, "--job", "job", "--model", model)
    incidents = score.incidents_of(lines)
    answers = score.judge(faults, incidents, kind_is_right)
    for answer in answers:
        fault = answer["fault"]
        print(f"{fault['kind']} {fault['dose']} rank {fault['ranks']}: " + (f"{answer['told']} after {answer['delay_s']:.1f} s, rank "
              f"{answer['rank']}, kind {'right' if answer['kind_right'] else 'wrong'}" if answer["found"] else "not found"))
    summary = score.summarise(answers, len(incidents), len(score.false_alarms(faults, incidents)), 0)
    print({name: summary[name] for name in ("found", "false", "wrong_rank", "no_rank", "kind_right", "delay_max_s")})
    problems = [text for is_wrong, text in (
        (healthy, f"{len(healthy)} lines on healthy windows"), (lines != again, "the same windows gave other incidents"),
        (summary["found"] < FOUND_MIN, "fewer faults are found"), (summary["false"], "false alarms"),
        (summary["wrong_rank"], "a wrong rank is named"), (summary["no_rank"], "a rank is not named"),
        (summary["kind_right"] < KINDS_RIGHT_MIN, "kinds are wrong"), (summary["delay_max_s"] > DELAY_MAX_S, "told late")) if is_wrong]
    report.judge("recorded", problems)


if __name__ == "__main__":
    kit.run(main)
