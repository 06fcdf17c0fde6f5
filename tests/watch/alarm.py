# SPDX-License-Identifier: Apache-2.0
"""From flagged seconds of each rank to incidents, by the rule that `kansoku watch` has: an alarm is on the share of a window, never on
a point. Plain Python.

A rank alarms when k of its last 5 or of its last 30 seconds are flagged, with the smallest k that healthy data would reach by chance
less often than the budget allows: flags are beta-binomial, with the share of flagged healthy seconds and their correlation. Of the last
5 only those count that are CLEAR, or all five are flagged; two in a row are enough where both are FAR, unless healthy data has such
seconds so often that two would meet by chance. An
incident is over after CLOSE_S without a flagged second of its ranks; an alarm within PAUSE_S of its last one is the same incident.
"""
import collections
import math

SPANS = ((5, 3), (30, 6))  # seconds; the smallest k
CLOSE_S, PAUSE_S = 10.0, 20.0
WINDOWS_A_DAY = 86400
SHARE_OF_BUDGET = 0.5 * 0.1  # what the product leaves to this test, and its reserve
CORRELATION_MAX = 0.9
FLAGGED, CLEAR, FAR = 1, 2, 3  # a flag is how far out its second is; 0: not flagged
TIMES_CLEAR, TIMES_FAR = 1.5, 3.0  # the threshold's distance from the median score
FAR_POINTS_MIN, FAR_TOGETHER, FAR_SHARE_OF_BUDGET = 400, 10, 0.1
Counts = collections.namedtuple("Counts", "short long trusts_far")  # the k of each span; whether two FAR seconds are enough


def log_beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def upper_share(k, n, p, correlation):
    """P(X >= k) of n trials, beta-binomial; correlation 0: binomial."""
    if k <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    if correlation <= 0:
        return sum(math.comb(n, i) * p**i * (1 - p)**(n - i) for i in range(k, n + 1))
    size = (1 - correlation) / correlation
    a, b = p * size, (1 - p) * size
    return sum(math.comb(n, i) * math.exp(log_beta(i + a, n - i + b) - log_beta(a, b)) for i in range(k, n + 1))


def correlation_of(healthy):
    """Between the flags of windows of SPANS[0] seconds, by their variance. `healthy`: for each rank (times, flags)."""
    n = SPANS[0][0]
    counts = [sum(map(bool, flags[i:i + n])) for _, flags in healthy for i in range(0, len(flags) - n + 1, n)]
    if len(counts) < 2:
        return 0.0
    share = sum(counts) / n / len(counts)
    if share in (0, 1):
        return 0.0
    variance = sum((count / n - share) ** 2 for count in counts) / (len(counts) - 1)
    return min(CORRELATION_MAX, max(0.0, (variance / (share * (1 - share) / n) - 1) / (n - 1)))


def needed(healthy, ranks, alarms_per_day=1.0):
    """The rule for a budget. `healthy`: for each rank (times, flags) of healthy data."""
    total, correlation = sum(len(flags) for _, flags in healthy), correlation_of(healthy)
    shares = [(sum(flag >= least for _, flags in healthy for flag in flags) + 0.5) / (total + 1) for least in (CLEAR, FLAGGED)]
    alpha = alarms_per_day * SHARE_OF_BUDGET / (WINDOWS_A_DAY * max(1, ranks)) / len(SPANS)
    short, long = (next((k for k in range(least, n) if upper_share(k, n, share, correlation) <= alpha), n)
                   for share, (n, least) in zip(shares, SPANS))
    far = sum(flag >= FAR for _, flags in healthy for flag in flags)
    far_share = (far + 0.5) / (total + 1) if far else 0.0
    chance = FAR_TOGETHER * far_share ** 2 * WINDOWS_A_DAY * max(1, ranks)
    return Counts(short, long, total >= FAR_POINTS_MIN and chance <= FAR_SHARE_OF_BUDGET * alarms_per_day)


class Rank:
    """The flagged seconds that still count; what an incident has told counts no more."""

    def __init__(self):
        self.flagged = collections.deque()  # (time, flag)

    def alarms(self, time_s, flag, counts):
        if flag:
            self.flagged.append((time_s, flag))
        while self.flagged and self.flagged[0][0] <= time_s - SPANS[-1][0]:
            self.flagged.popleft()
        short = [how for at, how in self.flagged if at > time_s - SPANS[0][0]]
        is_far = counts.trusts_far and sum(at > time_s - 2 and how >= FAR for at, how in self.flagged) >= 2
        return (is_far or len(short) >= SPANS[0][0] or sum(how >= CLEAR for how in short) >= counts.short
                or len(self.flagged) >= counts.long)


def seconds_of(by_rank):
    """(time, {rank: flag}) in time order."""
    seconds = collections.defaultdict(dict)
    for rank, (times, flags) in by_rank.items():
        for time_s, flag in zip(times, flags):
            seconds[time_s][rank] = int(flag)
    return sorted(seconds.items())


def incidents(by_rank, counts):
    """As score.incidents_of() gives them. `by_rank`: rank -> (times, flags). Ranks are named where at most a quarter alarm, or one."""
    out, ranks, is_open = [], {rank: Rank() for rank in by_rank}, False
    for time_s, flags in seconds_of(by_rank):
        alarmed = {rank for rank, flag in flags.items() if ranks[rank].alarms(time_s, flag, counts)}
        if is_open and time_s - out[-1]["end_s"] >= CLOSE_S:
            is_open = False
            for rank in ranks.values():
                rank.flagged.clear()
            alarmed = set()
        if alarmed and not is_open:
            is_open = True
            if not out or time_s - out[-1]["end_s"] > PAUSE_S:
                begin_s = min(at for rank in alarmed for at, _ in ranks[rank].flagged)
                out.append({"begin_s": begin_s, "end_s": time_s, "first_s": time_s, "ranks": set(), "kind": None, "pids": [], "job": ""})
        if is_open:
            out[-1]["ranks"] |= alarmed
            if any(flags.get(rank) for rank in out[-1]["ranks"]):
                out[-1]["end_s"] = time_s
    for one in out:
        one["ranks"] = sorted(one["ranks"]) if len(one["ranks"]) <= max(1, len(by_rank) // 4) else []
    return out
