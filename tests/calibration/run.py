#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Does a stated confidence mean what it says? Counts the findings that blame a rank or a function, by their confidence, and how many of
them are true, in the results that evaluations have left.

  run.py [FILE...]   results of tests/equal_work, tests/faults and tests/false_confidence [build/equal_work, build/faults,
                     build/false_confidence]
  run.py --check     tests itself
"""
import collections
import glob
import importlib.util
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "faults")]
import kit  # noqa: E402
import truth  # noqa: E402
from kit.parts import read_lines  # noqa: E402

FOLDERS = ("equal_work", "faults", "false_confidence")
BANDS = (("observed", None), ("0.99 and more", 0.99), ("0.95 to 0.99", 0.95), ("less than 0.95", 0.0))
WANTED = 0.97
OF_THE_JOB = ("cpu_contention", "moving_imbalance")  # they accuse nobody, whomever they name
# Whatever a finding blames, in the suite's own words: its confidence (None: observed), whether it is true, a sentence.
Blame = collections.namedtuple("Blame", "confidence is_true text")


def module_of(suite, name):
    """Two suites have a score.py."""
    spec = importlib.util.spec_from_file_location(f"{suite}_{name}", os.path.join(TESTS, suite, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


equal_work = module_of("equal_work", "score")
FAULTS, _ = truth.load(os.path.join(TESTS, "faults/faults"))


def blames(finding, world):
    return bool(finding["function"]) or 0 < len(finding["ranks"]) < world


def in_equal_work(result):
    for finding in result["findings"]:
        if not blames(finding, len(result["accounts"])) or finding["kind"] in OF_THE_JOB:
            continue
        is_one = sorted(finding["ranks"]) == [1]
        if result["part"] == "reasons":
            is_true = is_one and finding["kind"] == equal_work.REASONS[result["environment"]["REASON"]]
        elif finding["kind"] == "page_faults":
            is_true = equal_work.faults_are_right(result) is not False
        else:
            is_true = is_one and result["part"] in ("planted", "seldom")
        yield finding, is_true


def in_faults(result):
    fault = FAULTS.get(result["fault"])
    if fault is None:
        return
    world = fault.world or truth.MODELS[result["model"]][2]
    for number, finding in enumerate(result.get("findings", [])):
        if not blames(finding, world):
            continue
        if fault.expects == "nothing":
            yield finding, finding["kind"] in fault.kinds and not 0 < len(finding["ranks"]) < world
            continue
        # The stack of the first finding was judged when it was there.
        function = result["function"] if number == 0 else truth.function_is_right(fault, finding)
        yield finding, sorted(finding["ranks"]) == sorted(truth.ranks_of(fault, world)) and finding["kind"] in fault.kinds and function


def in_false_confidence(result):
    for finding in result.get("findings", []):
        # How many processes there were is not kept: whoever names all of them names a function, or is of the whole job.
        if finding["kind"] in OF_THE_JOB or not (finding["function"] or finding["ranks"]):
            continue
        yield finding, not any(text.startswith(finding["kind"]) and f"rank {finding['ranks']}" in text for text in result["wrong"])


def suite_of(result):
    return "equal_work" if "accounts" in result else "faults" if "fault" in result else "false_confidence" if "wrong" in result else None


def blamed(result):
    of = {"equal_work": in_equal_work, "faults": in_faults, "false_confidence": in_false_confidence}.get(suite_of(result))
    for finding, is_true in of(result) if of else ():
        name = " ".join(str(word) for word in result.get("key", []) if isinstance(word, (str, int, float)))
        yield Blame(finding["confidence"], is_true, f"{suite_of(result)} {name}: {finding['kind']} {finding['ranks']} {finding['function']}")


def band_of(blame):
    if blame.confidence is None:
        return "observed"
    return next(name for name, least in BANDS[1:] if blame.confidence >= least)


def print_table(all_blames):
    table = kit.Table("", "confidence", "findings that blame", "true", "share", "interval")
    for band, of_band in [*((name, [b for b in all_blames if band_of(b) == name]) for name, _ in BANDS), ("all", all_blames)]:
        right = sum(blame.is_true for blame in of_band)
        table.row(band, len(of_band), right, f"{right / len(of_band):.3f}" if of_band else "-",
                  kit.interval(right, len(of_band)) if of_band else "-")


def check():
    def one(kind, ranks, function="", confidence=0.99):
        return {"kind": kind, "ranks": ranks, "function": function, "confidence": confidence, "evidence": []}

    accounts = [{"system_ms": 0, "user_ms": 100, "faults": 10}] * 4
    base = {"environment": {"STEPS": "10"}, "steps": 10, "step_ms": 50, "accounts": accounts}
    fault = next(f for f in FAULTS.values() if f.expects == "slow" and isinstance(f.ranks, list) and f.function not in truth.WORDS)
    of_faults = {"fault": fault.name, "model": "mlp", "function": True}
    cases = [
        ({**base, "part": "healthy", "findings": [one("slow_forward", [2])]}, [("0.99 and more", False)]),
        ({**base, "part": "healthy", "findings": [one("page_faults", [2], "", None)]}, [("observed", False)]),
        ({**base, "part": "planted", "findings": [one("uneven_work", [1], "", 0.96), one("slow_other", [2])]},
         [("0.95 to 0.99", True), ("0.99 and more", False)]),
        ({**base, "part": "moving", "findings": [one("moving_imbalance", []), one("cpu_contention", [1])]}, []),
        ({**base, "part": "reasons", "environment": {"REASON": "limit"}, "findings": [one("reclaim", [1], "", None)]}, [("observed", True)]),
        ({**of_faults, "findings": [one(fault.kinds[0], fault.ranks, "f")]}, [("0.99 and more", True)]),
        ({**of_faults, "findings": [one(fault.kinds[0], [3 - rank for rank in fault.ranks], "f", 0.5)]}, [("less than 0.95", False)]),
        ({"wrong": ["slow_input rank [1] in f, 3.0 ms"], "findings": [one("slow_input", [1], "f"), one("blocked", [0], "g")]},
         [("0.99 and more", False), ("0.99 and more", True)]),
        ({"wrong": [], "findings": []}, []),
    ]
    for number, (result, expected) in enumerate(cases):
        found = [(band_of(blame), bool(blame.is_true)) for blame in blamed(result)]
        kit.expect(found == expected, f"case {number}: {found} instead of {expected}")
    print(f"calibration: {len(cases)} cases")


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="only test this program")
    options = parser.parse_args()
    if options.check:
        report.part("check", check)
        return None
    files = options.files or [file for folder in FOLDERS for file in sorted(glob.glob(os.path.join(kit.ROOT, "build", folder, "*.jsonl")))]
    results = [result for file in files for result in read_lines(file) if "not_run" not in result]
    kit.need(results, "no results: make equal-work, make faults and make false-confidence leave some")
    all_blames = [blame for result in results for blame in blamed(result)]
    print_table(all_blames)
    for blame in all_blames:
        if not blame.is_true:
            print(f"untrue: {blame.text}")
    right = sum(blame.is_true for blame in all_blames)
    report.judge("calibration", [f"{right} of {len(all_blames)} true, {WANTED} wanted"] if right < WANTED * len(all_blames) else [])
    return None


if __name__ == "__main__":
    kit.run(main)
