# SPDX-License-Identifier: Apache-2.0
"""From flagged seconds of each rank to incidents: an alarm is on the share of a window, never on a point. Plain Python.

A rank alarms when k of the last WINDOW_S seconds are flagged and so many would come by chance less often than the budget allows,
P(X >= k | n, p0) < alarms a day / (windows a day * ranks), with p0 the share of flagged seconds on healthy data. Since flags come in
clusters, k is also above all that a window of the healthy data has shown.
"""
import math

WINDOW_S = 8
CLOSE_S = 5.0  # without an alarm: the incident is over
WINDOWS_A_DAY = 86400


def binomial_tail(k, n, p):
    """P(X >= k)."""
    return sum(math.comb(n, i) * p**i * (1 - p)**(n - i) for i in range(k, n + 1))


def counts(times, flags):
    """How many of the WINDOW_S seconds up to each time are flagged. `times` in seconds, ascending; a gap empties the window."""
    out, begin, sum_ = [], 0, 0
    for i, (time_s, flag) in enumerate(zip(times, flags)):
        sum_ += bool(flag)
        while times[begin] <= time_s - WINDOW_S:
            sum_ -= bool(flags[begin])
            begin += 1
        out.append((sum_, i - begin + 1))
    return out


def needed(healthy, ranks, alarms_per_day=1.0):
    """The k of the rule. `healthy`: for each rank (times, flags) of healthy data. Never more than a window has."""
    flagged = sum(sum(map(bool, flags)) for _, flags in healthy)
    total = sum(len(flags) for _, flags in healthy)
    p0 = max(flagged, 1) / (total + 1)
    alpha = alarms_per_day / (WINDOWS_A_DAY * ranks)
    by_chance = next((k for k in range(1, WINDOW_S + 1) if binomial_tail(k, WINDOW_S, p0) < alpha), WINDOW_S)
    seen = max((k for times, flags in healthy for k, _ in counts(times, flags)), default=0)
    return min(WINDOW_S, max(by_chance, seen + 1))


def alarms(by_rank, k):
    """(time, rank, begin) of each second in which a rank alarms, in time order; `begin`: its first flagged second of the window."""
    out = []
    for rank, (times, flags) in sorted(by_rank.items()):
        flagged = []
        for time_s, flag, (count, _) in zip(times, flags, counts(times, flags)):
            if flag:
                flagged.append(time_s)
            if count >= k:
                out.append((time_s, rank, next(t for t in flagged[-WINDOW_S - 1:] if t > time_s - WINDOW_S)))
    return sorted(out)


def incidents(by_rank, k):
    """As score.incidents_of() gives them. Ranks are named where at most half of them alarm."""
    out = []
    for time_s, rank, begin_s in alarms(by_rank, k):
        if not out or time_s > out[-1]["end_s"] + CLOSE_S:
            out.append({"begin_s": begin_s, "end_s": time_s, "first_s": time_s, "ranks": set(), "kind": None, "pids": [], "job": ""})
        out[-1]["end_s"] = time_s
        out[-1]["ranks"].add(rank)
    for one in out:
        one["ranks"] = sorted(one["ranks"]) if 2 * len(one["ranks"]) <= len(by_rank) else []
    return out
