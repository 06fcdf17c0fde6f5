# SPDX-License-Identifier: Apache-2.0
"""Compares incidents with planted faults, event by event. Plain values in, plain values out.

A fault is found if an incident of its job overlaps [begin, end + FOUND_S] and is its own: it began and was told after the fault began
(EARLY_S of slack, since windows end later than they begin). An incident left open by the fault before counts for nothing. An incident
that overlaps no [begin, end + GRACE_S] is a false alarm. Lines that say of an incident that it has no effect page nobody: they do not count.
"""
import math
import statistics

FOUND_S, GRACE_S, EARLY_S = 10.0, 15.0, 2.0


def incidents_of(lines):
    """From arrivals.jsonl, one dict an incident: begin_s, end_s (inf: open), first_s (when it was told first), kind, ranks, pids, job."""
    out = {}
    for line in lines:
        said = line.get("incident", {})
        if said.get("schema") != "kansoku.watch_incident/1" or said.get("effect") is False:
            continue
        one = out.setdefault(said["id"], {"first_s": line["arrived_s"]})
        ended = int(said["end_ns"])
        one.update(job=said["job"], begin_s=int(said["begin_ns"]) / 1e9, end_s=ended / 1e9 if ended else math.inf, kind=said["kind"],
                   ranks=list(said["ranks"]), pids=list(said["pids"]))
    return sorted(out.values(), key=lambda one: (one["begin_s"], one["first_s"]))


def of_job(incidents, job_names, pids):
    """Those of the job under test, and those of strangers on this machine."""
    ours = [one for one in incidents if one["job"] in job_names or set(one["pids"]) & set(pids)]
    return ours, [one for one in incidents if one not in ours]


def overlaps(one, begin_s, end_s):
    return one["begin_s"] <= end_s and one["end_s"] >= begin_s


def is_own(one, fault):
    return (overlaps(one, fault["begin_s"], fault["end_s"] + FOUND_S) and one["begin_s"] >= fault["begin_s"] - EARLY_S
            and one["first_s"] >= fault["begin_s"])


def rank_answer(fault, one):
    """"right", "wrong", "none" named; None: this fault has no culprit."""
    if not fault["ranks"]:
        return None
    if not one["ranks"]:
        return "none"
    return "right" if set(one["ranks"]) <= set(fault["ranks"]) else "wrong"


def judge(faults, incidents, kind_is_right=None):
    """One dict a fault that was planted: found, touched (found by the overlap alone), delay_s, rank, told (kind), kind_right."""
    out = []
    for fault in (f for f in faults if "end_s" in f):
        own = sorted((one for one in incidents if is_own(one, fault)), key=lambda one: one["first_s"])
        answer = {"fault": fault, "found": bool(own), "delay_s": None, "rank": None, "told": None, "kind_right": None,
                  "touched": any(overlaps(one, fault["begin_s"], fault["end_s"] + FOUND_S) for one in incidents)}
        if own:
            answer.update(delay_s=own[0]["first_s"] - fault["begin_s"], rank=rank_answer(fault, own[0]), told=own[0]["kind"],
                          kind_right=kind_is_right(fault["kind"], own[0]["kind"]) if kind_is_right else None)
        out.append(answer)
    return out


def false_alarms(faults, incidents):
    planted = [fault for fault in faults if "end_s" in fault]
    return [one for one in incidents if not any(overlaps(one, f["begin_s"], f["end_s"] + GRACE_S) for f in planted)]


def quantile(values, share):
    """The smallest value that is not below so large a share of all."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def ratio(count, of):
    return count / of if of else None


def watched_s(begin_s, end_s, faults):
    """Time in which an incident would be a false alarm."""
    return max(0.0, end_s - begin_s - sum(f["end_s"] - f["begin_s"] + GRACE_S for f in faults if "end_s" in f))


def summarise(answers, incident_count, false_count, quiet_s):
    """Figures of one method over all parts; None where there is nothing to divide by."""
    found = [a for a in answers if a["found"]]
    delays = [a["delay_s"] for a in found]
    ranked = [a["rank"] for a in found if a["rank"]]
    kinds = [a["kind_right"] for a in found if a["kind_right"] is not None]
    recall, precision = ratio(len(found), len(answers)), ratio(incident_count - false_count, incident_count)
    both = (recall or 0) + (precision or 0)
    return {"faults": len(answers), "found": len(found), "touched": sum(a["touched"] for a in answers), "recall": recall,
            "precision": precision, "f1": 2 * recall * precision / both if both and None not in (recall, precision) else None,
            "delay_median_s": statistics.median(delays) if delays else None, "delay_p95_s": quantile(delays, 0.95),
            "delay_max_s": max(delays, default=None), "wrong_rank": ratio(ranked.count("wrong"), len(ranked)),
            "no_rank": ratio(ranked.count("none"), len(ranked)), "kind_right": ratio(sum(kinds), len(kinds)),
            "incidents": incident_count, "false": false_count, "false_per_day": ratio(false_count * 86400, quiet_s)}
