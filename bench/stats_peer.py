#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The same mixture by scikit-learn, for bench/stats_bench.cc: prints key=value pairs on one line.

stats_peer.py make FILE ROWS FEATURES COMPONENTS SEED   rows, then weights, means and covariances of a start: 64-bit floats
stats_peer.py fit FILE ROWS FEATURES COMPONENTS ITERATIONS RIDGE

How many threads it may use is OPENBLAS_NUM_THREADS. It refuses to run without OpenBLAS: the reference BLAS would be too easy.
"""
import sys
import time
import warnings

import numpy as np
import threadpoolctl
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture


def make(path, n, d, k, seed):
    """Overlapping components of different shapes and weights; the start is rows of the data and the variances of all."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(k, 4.0))
    which = rng.choice(k, size=n, p=share)
    shapes = np.eye(d) * .6 + .15 * rng.normal(size=(k, d, d))
    centres = rng.normal(size=(k, d))
    rows = rng.normal(size=(n, d))
    for i in range(k):
        rows[which == i] = rows[which == i] @ shapes[i] + centres[i]
    start = rows[rng.choice(n, k, replace=False)]
    covariances = np.array([np.diag(rows.var(axis=0))] * k)
    with open(path, "wb") as file:
        for values in (rows, np.full(k, 1 / k), start, covariances):
            file.write(np.ascontiguousarray(values, dtype="<f8").tobytes())
    print(f"rows={n}")


def fit(path, n, d, k, iterations, ridge):
    blas = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    if len(blas) != 1 or blas[0]["internal_api"] != "openblas":
        sys.exit(f"stats_peer.py: not OpenBLAS but {blas}")
    values = np.fromfile(path, dtype="<f8")
    rows, weights, means, covariances = np.split(values, np.cumsum([n * d, k, k * d]))
    rows = rows.reshape(n, d)
    model = GaussianMixture(k, covariance_type="full", tol=0, reg_covar=ridge, max_iter=iterations, weights_init=weights,
                            means_init=means.reshape(k, d),
                            precisions_init=np.linalg.inv(covariances.reshape(k, d, d)))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows)
    took = time.perf_counter() - began
    began = time.perf_counter()
    density = model.score_samples(rows)
    scored = time.perf_counter() - began
    print(f"seconds={took:.6f} score_seconds={scored:.6f} log_likelihood={float(density.sum())!r} "
          f"iterations={model.n_iter_} blas=openblas-{blas[0]['version']}-{blas[0]['threading_layer']}-"
          f"{blas[0]['architecture']} blas_threads={blas[0]['num_threads']}")


def main(args):
    if len(args) == 6 and args[0] == "make":
        make(args[1], *map(int, args[2:]))
    elif len(args) == 7 and args[0] == "fit":
        fit(args[1], *map(int, args[2:6]), float(args[6]))
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
