# SPDX-License-Identifier: Apache-2.0
"""What others would do with the same numbers: thresholds on each feature, and scikit-learn's isolation forest.

Both are fitted to the first part of a clean run's rows, get the cut of their score from the next part (CUT_SHARE of it is flagged) and
the rule of alarm.py from the last part. Both see each row, a second of a rank, alone and as it is.
"""
import csv

import numpy as np

import alarm

META = ("time_s", "job", "rank", "pid")
FIT, CUT = 0.6, 0.8  # ends of the slices, in time order
CUT_SHARE = 0.005
START_S = 30.0  # of a run: probes attach, the first windows are no whole ones
TREES = 200
ROWS_MIN = 100


class Rows:
    """Rows of one features.csv, in time order: times, ranks, values (row, feature), NaN where nothing was seen."""

    def __init__(self, times, ranks, values, features):
        self.times, self.ranks, self.values, self.features = times, ranks, values, features

    def slice(self, begin, end):
        """By share of the rows."""
        rows = slice(int(begin * len(self.times)), int(end * len(self.times)))
        return Rows(self.times[rows], self.ranks[rows], self.values[rows], self.features)

    def by_rank(self, flags):
        return {int(rank): (self.times[self.ranks == rank].tolist(), flags[self.ranks == rank].tolist()) for rank in np.unique(self.ranks)}


def read_rows(path, pids, skip_s=0.0):
    """Rows of these processes; also the names of the jobs they belong to. A line that was cut off is left out."""
    times, ranks, values, jobs = [], [], [], set()
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        features = [name for name in reader.fieldnames or () if name not in META]
        for row in reader:
            if None in row.values() or int(row["pid"]) not in pids:
                continue
            times.append(float(row["time_s"]))
            ranks.append(int(row["rank"] or -1))
            values.append([float(row[name]) if row[name] else np.nan for name in features])
            jobs.add(row["job"])
    order = np.argsort(times, kind="stable")
    table = Rows(np.array(times)[order], np.array(ranks, dtype=int)[order], np.array(values).reshape(-1, len(features))[order], features)
    late = table.times >= (table.times[0] + skip_s if len(times) else 0)
    return Rows(table.times[late], table.ranks[late], table.values[late], features), jobs


class Thresholds:
    """Each feature has a band, median plus and minus k scaled deviations; the same k for all."""

    name = "thresholds"

    def fit(self, values):
        seen = ~np.all(np.isnan(values), axis=0)
        known = np.where(seen, values, 0.0)
        self.middle = np.nanmedian(known, axis=0)
        off = np.abs(known - self.middle)
        scale = 1.4826 * np.nanmedian(off, axis=0)
        # A feature that is mostly constant: its mean deviation; one that is wholly so: any change stands out.
        scale = np.where(scale > 0, scale, 1.2533 * np.nanmean(off, axis=0))
        scale = np.maximum(scale, np.maximum(0.01 * np.abs(self.middle), 1e-9))
        self.scale = np.where(seen, scale, np.inf)  # no band for what was never seen

    def scores(self, values):
        """Large: far out."""
        off = np.abs(values - self.middle) / self.scale
        return np.max(np.where(np.isnan(off), 0.0, off), axis=1)


class Forest:
    """Isolation forest; what was not seen is taken for the median."""

    name = "isolation forest"

    def __init__(self, seed=1):
        self.seed = seed

    def fit(self, values):
        from sklearn.ensemble import IsolationForest
        self.known = ~np.all(np.isnan(values), axis=0)
        self.middle = np.nanmedian(values[:, self.known], axis=0)
        self.forest = IsolationForest(n_estimators=TREES, random_state=self.seed).fit(self.filled(values))

    def filled(self, values):
        known = values[:, self.known]
        return np.where(np.isnan(known), self.middle, known)

    def scores(self, values):
        return -self.forest.score_samples(self.filled(values))


class Calibrated:
    """A method with its cut and its alarm rule."""

    def __init__(self, method, clean, alarms_per_day=1.0):
        if len(clean.times) < ROWS_MIN:
            raise ValueError(f"{len(clean.times)} rows of a clean run are too few")
        self.method, self.name = method, method.name
        method.fit(clean.slice(0, FIT).values)
        scores = method.scores(clean.slice(FIT, CUT).values)
        self.cut, self.middle = np.quantile(scores, 1 - CUT_SHARE), np.median(scores)
        healthy = clean.slice(CUT, 1)
        by_rank = healthy.by_rank(self.flags(healthy))
        self.healthy_share = float(np.mean(self.flags(healthy) > 0))
        self.needed = alarm.needed(list(by_rank.values()), len(by_rank), alarms_per_day)

    def flags(self, rows):
        """0, or how far out: alarm.FLAGGED, CLEAR or FAR."""
        scores, above = self.method.scores(rows.values), self.cut - self.middle
        return sum((scores > self.middle + times * above).astype(int) for times in (1.0, alarm.TIMES_CLEAR, alarm.TIMES_FAR))

    def incidents(self, rows):
        return alarm.incidents(rows.by_rank(self.flags(rows)), self.needed) if len(rows.times) else []


def methods():
    return [Thresholds(), Forest()]
