#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/stats/mixture_reference.json: small data sets, a start for each, and what scikit-learn's GaussianMixture
makes of it after some iterations. src/stats/mixture_test.cc compares.

    apt-get install -y --no-install-recommends python3-sklearn
    tests/stats/mixture_reference.py            # writes the file
    tests/stats/mixture_reference.py --check    # exit status 1 if scikit-learn of this machine disagrees with it by 1e-9
"""
import json
import os
import sys
import warnings

import numpy as np
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

OUTPUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "stats", "mixture_reference.json")
ITERATIONS = (0, 1, 5, 40)


def one_dimension(rng):
    """Three bumps on logarithms of durations."""
    return np.concatenate([rng.normal(m, s, n) for m, s, n in ((8.5, .1, 150), (9.7, .4, 150), (13, 1.5, 100))])[:, None]


def separated(rng):
    return np.concatenate([rng.normal(m, 1, (130, 2)) for m in ([0, 0], [20, 0], [0, 30])])


def overlapping(rng):
    return np.concatenate([rng.normal(size=(125, 5)) @ (np.eye(5) + .4 * rng.normal(size=(5, 5))) + rng.normal(size=5)
                           for _ in range(4)])


def sixteen(rng):
    return np.concatenate([rng.normal(size=(200, 16)) @ (np.eye(16) + .2 * rng.normal(size=(16, 16))) + 2 * rng.normal(size=16)
                           for _ in range(2)])


def scales(rng):
    """Features of 1e-6, 1 and 1e6, far from the origin compared with how they spread, and correlated."""
    base = np.concatenate([rng.normal(m, s, (150, 3)) for m, s in ((0, 1), (4, .5))])
    base[:, 2] += .9 * base[:, 0]
    return base * [1e-6, 1, 1e6] + [1e-4, 50, 1e8]


DATA_SETS = ((one_dimension, 3, 1e-6), (separated, 3, 1e-6), (overlapping, 4, 1e-3), (sixteen, 2, 1e-6), (scales, 2, 1e-18))


def rounded(values, digits=8):
    return [float(f"%.{digits}g" % v) for v in np.asarray(values).ravel()]


def reference(make, components, ridge, seed):
    rng = np.random.default_rng(seed)
    shape = (-1, make(np.random.default_rng(seed)).shape[1])
    rows = np.array(rounded(rng.permutation(make(rng)))).reshape(shape)
    means = rows[rng.choice(len(rows), components, replace=False)]
    covariances = np.array([np.diag(rounded(rows.var(axis=0) + ridge))] * components)
    weights = np.full(components, 1 / components)
    fits = []
    for iterations in ITERATIONS:
        model = GaussianMixture(components, covariance_type="full", tol=0, reg_covar=ridge, max_iter=max(1, iterations),
                                weights_init=weights, means_init=means, precisions_init=np.linalg.inv(covariances))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(rows)
        if iterations == 0:  # the start itself: scikit-learn has no fit without a step
            model.weights_, model.means_, model.covariances_ = weights, means, covariances
            model.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(covariances))
        fits.append({"iterations": iterations, "log_likelihood": float(model.score_samples(rows).sum())})
    return {"name": make.__name__, "ridge": ridge, "rows": rows.ravel().tolist(),
            "start": {"dimensions": shape[1], "weights": weights.tolist(), "means": means.ravel().tolist(),
                      "covariances": covariances.ravel().tolist()},
            "fits": fits, "weights": model.weights_.tolist(), "means": model.means_.ravel().tolist(),
            "covariances": model.covariances_.ravel().tolist(), "bic": float(model.bic(rows))}


def differs(a, b):
    """Whether two JSON values differ, numbers by more than 1e-9 of their size."""
    if isinstance(a, dict):
        return a.keys() != b.keys() or any(differs(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) != len(b) or any(differs(x, y) for x, y in zip(a, b))
    return abs(a - b) > 1e-9 * max(1e-300, abs(a), abs(b)) if isinstance(a, float) else a != b


def main():
    sets = [reference(make, components, ridge, seed) for seed, (make, components, ridge) in enumerate(DATA_SETS, 1)]
    if "--check" in sys.argv[1:]:
        with open(OUTPUT, encoding="utf-8") as file:
            recorded = json.load(file)["sets"]
        bad = [new["name"] for new, old in zip(sets, recorded) if differs(new, old)]
        print("\n".join(f"{name}: differs" for name in bad) or "the same")
        return 1 if bad or len(sets) != len(recorded) else 0
    with open(OUTPUT, "w", encoding="utf-8") as file:
        json.dump({"source": f"scikit-learn {sklearn.__version__}, numpy {np.__version__}", "sets": sets}, file,
                  separators=(",", ":"))
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
