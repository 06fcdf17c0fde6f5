# SPDX-License-Identifier: Apache-2.0
"""The score table of the fault suite, in Markdown."""
import itertools
import statistics

import kit


def count(results, word):
    judged = [r[word] for r in results if word in r]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def with_interval(results):
    """"19 of 20 (0.76 to 0.99)": how many are right, with the interval of the share."""
    return f"{count(results, 'right')} ({kit.interval(sum(r['right'] for r in results), len(results))})"


def median(values, form):
    known = [value for value in values if value is not None]
    return form.format(statistics.median(known)) if known else ""


def growth(result):
    return 100 * (result["fault_ms"] / result["clean_ms"] - 1) if "fault_ms" in result else None


def last_answers(results):
    """One result a combination: the last, and one that ran before one that did not."""
    out = {}
    for result in results:
        key = tuple(result["key"])
        if "not_run" not in result or key not in out:
            out[key] = result
    return list(out.values())


def rows(results):
    for (fault, dose), group in itertools.groupby(sorted(results, key=lambda r: (r["expects"], r["fault"], r["dose"] or 0)),
                                                  key=lambda r: (r["fault"], r["dose"])):
        yield fault, dose, list(group)


def print_table(results):
    results = last_answers(results)
    ran = [r for r in results if "not_run" not in r]
    print("\n| fault | dose | step grew by | detected | rank | function | kind | right | time to report |\n"
          "|---|---|---|---|---|---|---|---|---|")
    for fault, dose, group in rows(ran):
        print(f"| {fault} | {'' if dose is None else dose} | {median(map(growth, group), '{:.0f} %')} | {count(group, 'detected')} | "
              f"{count(group, 'rank')} | {count(group, 'function')} | {count(group, 'kind')} | {with_interval(group)} | "
              f"{median([r['report_s'] for r in group], '{:.1f} s')} |")
    slow, hang, clean = ([r for r in ran if r["expects"] == what] for what in ("slow", "hang", "nothing"))
    hours = sum(r["run_s"] for r in clean) / 3600
    alarms = sum(r["false_alarms"] for r in clean)
    print(f"\nslow: {count(slow, 'right') or 'none'} right, {count(slow, 'rank') or 'none'} rank, {count(slow, 'function') or 'none'} "
          f"function, {count(slow, 'kind') or 'none'} kind")
    print(f"hangs explained: {count(hang, 'right') or 'none'}")
    print(f"false alarms: {alarms} in {hours:.2f} hours without a culprit" + (f" ({alarms / hours:.1f} an hour)" if hours else ""))
    opened = [r["windows"] for r in clean if "windows" in r]
    if opened:
        print(f"windows that the detector opened in {len(opened)} of these runs: {sum(opened)}")
    for reason, group in itertools.groupby(sorted((r for r in results if "not_run" in r), key=lambda r: r["not_run"]),
                                           key=lambda r: r["not_run"]):
        print(f"not run: {', '.join(sorted({r['fault'] for r in group}))}: {reason}")
