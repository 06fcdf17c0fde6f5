# SPDX-License-Identifier: Apache-2.0
"""Steps of a running job against itself: windows in which something is on, or off, in pairs."""
import random
import statistics

STEPS_MIN, RESAMPLES = 4, 2000


def median_interval(values, seed=1, share=0.95):
    """Median and the interval that holds `share` of the medians of resampled values."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    edge = int((1 - share) / 2 * RESAMPLES)
    return statistics.median(values), medians[edge], medians[-1 - edge]


def mean_step_s(ends, begin_s, end_s):
    """Of the steps that lie wholly in the window; None if there are too few."""
    inside = [end for end in ends if begin_s <= end <= end_s]
    return (inside[-1] - inside[0]) / (len(inside) - 1) if len(inside) > STEPS_MIN else None


def pair_changes(windows, ends):
    """`windows`: (is_on, begin_s, end_s), two by two; the relative change of the step by being on, for each whole pair."""
    out = []
    for first, second in zip(windows[::2], windows[1::2]):
        by_phase = {is_on: mean_step_s(ends, begin_s, end_s) for is_on, begin_s, end_s in (first, second)}
        if len(by_phase) == 2 and None not in by_phase.values():
            out.append(by_phase[True] / by_phase[False] - 1)
    return out
