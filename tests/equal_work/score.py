#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Is a diagnosis of a job right, by the part that it is of and by the kernel's account of each rank? Run as a program, it tests itself.

A result: `part`, `environment` of the job, `steps`, `accounts` (system_ms, user_ms, faults of each rank, in all), `findings`.
"""
import sys

ALL_SHARE = 0.04  # of a step: all ranks are named if each loses that; the diagnosis wants 0.05
ABOVE_MS, WITHIN_MS = 5, 1  # system time a step above the least rank's: named for certain; named never
# Findings that accuse neither a rank nor its code: true by the kernel's account, or of the whole job.
IMPERSONAL = ("page_faults", "cpu_contention", "moving_imbalance")
# Reasons on rank 1, and the kinds that name them.
REASONS = {"cow": "page_faults", "mapping": "page_faults", "dontneed": "page_faults", "evicted": "page_faults", "limit": "reclaim",
           "calls": "system_calls", "lock": "blocked", "interrupts": "interrupts"}


def faults_are_right(result):
    """Who is named for page faults, against system time a step; None: nobody is, and nobody had to be."""
    steps = int(result["environment"].get("STEPS") or 0) or result["steps"]
    system_ms = [account["system_ms"] / max(steps, 1) for account in result["accounts"]]
    due = [rank for rank, ms in enumerate(system_ms) if ms >= min(system_ms) + ABOVE_MS]
    never = [rank for rank, ms in enumerate(system_ms) if ms <= min(system_ms) + WITHIN_MS]
    named = next((sorted(f["ranks"]) for f in result["findings"] if f["kind"] == "page_faults"), None)
    if named is None:
        return False if due else None
    if len(named) == len(system_ms):
        return min(system_ms) >= ALL_SHARE * result["step_ms"]
    return set(due) <= set(named) and not set(never) & set(named)


def promised_ms(result):
    """The step that a finding of page faults promises without them."""
    for finding in result["findings"]:
        for line in finding["evidence"] if finding["kind"] == "page_faults" else []:
            words = line.split()
            if line.startswith("without them"):
                return float(words[words.index("ms,") - 1]), "at most" in line
    return None, False


def blames(result):
    return [f for f in result["findings"] if f["kind"] not in IMPERSONAL and (f["function"] or 0 < len(f["ranks"]) < len(result["accounts"]))]


def others(result):
    """Findings that accuse nobody and are not true of the job."""
    moves = result["part"] == "moving"
    out = [f for f in result["findings"] if f["kind"] not in ("page_faults", "cpu_contention") and f not in blames(result)]
    return [f for f in out if not (moves and f["kind"] == "moving_imbalance")]


def is_right(result):
    kinds = [f["kind"] for f in result["findings"]]
    blamed = blames(result)
    if result["part"] in ("planted", "seldom"):
        return bool(blamed) and all(f["ranks"] == [1] for f in blamed) and faults_are_right(result) is not False
    if result["part"] == "reasons":
        named = [f["ranks"] for f in result["findings"] if f["kind"] not in ("cpu_contention", "moving_imbalance")]
        return bool(kinds) and kinds[0] == REASONS[result["environment"]["REASON"]] and all(ranks == [1] for ranks in named)
    if result["part"] == "setting":
        return not [kind for kind in kinds if kind != "cpu_contention"]
    if result["part"] == "moving" and "moving_imbalance" not in kinds:
        return False
    return not blamed and not others(result) and faults_are_right(result) is not False


def selftest():
    def result(part, findings, system_ms=(10, 10, 10, 10)):
        told = [{"kind": kind, "ranks": ranks, "function": function, "evidence": []} for kind, ranks, function in findings]
        return {"part": part, "environment": {"STEPS": "10"}, "steps": 9, "step_ms": 100, "findings": told,
                "accounts": [{"system_ms": 10 * ms, "user_ms": 100, "faults": 100} for ms in system_ms]}

    everybody = [0, 1, 2, 3]
    cases = [
        ("healthy", [], {}, True),
        ("healthy", [("cpu_contention", everybody, "")], {}, True),
        ("healthy", [("slow_forward", [2], "")], {}, False),
        ("healthy", [("common_input", everybody, "load")], {}, False),
        ("healthy", [("moving_imbalance", [], "")], {}, False),
        ("healthy", [], {"system_ms": (10, 10, 10, 16)}, False),
        ("healthy", [("page_faults", [3], "")], {"system_ms": (10, 10, 10, 16)}, True),
        ("faults", [("page_faults", [2], "")], {"system_ms": (10, 10, 10, 16)}, False),
        ("faults", [("page_faults", [2, 3], "")], {"system_ms": (10, 10, 12, 16)}, True),
        ("faults", [("page_faults", everybody, "")], {"system_ms": (10, 10, 10, 16)}, True),
        ("faults", [("page_faults", everybody, "")], {"system_ms": (3, 10, 10, 16)}, False),
        ("setting", [("page_faults", everybody, "")], {}, False),
        ("moving", [("moving_imbalance", [], "")], {}, True),
        ("moving", [], {}, False),
        ("moving", [("moving_imbalance", [], ""), ("slow_forward", [1], "")], {}, False),
        ("planted", [("uneven_work", [1], "rows_of")], {}, True),
        ("planted", [("uneven_work", [1], ""), ("slow_other", [2], "")], {}, False),
        ("planted", [], {}, False),
        ("seldom", [("slow_forward", [1], "")], {}, True),
    ]
    wrong = [f"{part} {findings} {more}: {not expected}" for part, findings, more, expected in cases
             if is_right(result(part, findings, **more)) is not expected]
    reasons = [([("reclaim", [1], "")], True), ([("reclaim", [2], "")], False), ([("reclaim", [1], ""), ("slow_forward", [3], "")], False),
               ([("blocked", [1], "f"), ("reclaim", [1], "")], False)]
    for findings, expected in reasons:
        one = result("reasons", findings)
        one["environment"]["REASON"] = "limit"
        if is_right(one) is not expected:
            wrong.append(f"reasons {findings}: {not expected}")
    promise = result("faults", [("page_faults", everybody, "")])
    for line, expected in (("without them a step would take about 37.4 ms, not 60.9 ms", (37.4, False)),
                           ("without them a step would take at most 30.0 ms, not 60.9 ms", (30.0, True))):
        promise["findings"][0]["evidence"] = ["rank 1: 3 page faults a step", line]
        if promised_ms(promise) != expected:
            wrong.append(f"{line}: {promised_ms(promise)}")
    print("\n".join(wrong) or f"score: {len(cases) + len(reasons)} cases")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if selftest() else 0)
