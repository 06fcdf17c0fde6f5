#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of src/stats/tail_test.cc and src/stats/counts_test.cc: generalised Pareto and binomial distributions by scipy,
beta-binomial tails by exact summation (scipy's loses its digits below 1e-9), maximum likelihood by direct search.

    apt-get install -y --no-install-recommends python3-scipy python3-mpmath
    tests/stats/tail_reference.py
"""
import mpmath
import numpy as np
import scipy.optimize
import scipy.stats
from scipy.special import betaln

EXACT = dict(xatol=1e-12, fatol=1e-13, maxiter=10000)


def row(*values):
    print("    {" + ", ".join(f"{v:.17g}" if isinstance(v, float) else str(v) for v in values) + "},")


def pareto():
    for shape in (-.4, -.1, 0., .2, .9):
        for y in (.01, 1., 3., 40.):
            row(shape, y, float(scipy.stats.genpareto.sf(y, shape, scale=1.5)))
    print("excess of a survival")
    for shape in (-.4, -.1, 0., .2, .9):
        for survival in (.5, 1e-3, 1e-9):
            row(shape, survival, float(scipy.stats.genpareto.isf(survival, shape, scale=1.5)))
    print("maximum likelihood: shape of the quantiles, fitted shape, scale, log-likelihood")
    i = np.arange(200)
    share = np.clip((i + .5) / 200 + .002 * np.sin(1.7 * i), 1e-4, 1 - 1e-4)
    for shape in (-.3, 0., .4):
        values = scipy.stats.genpareto.isf(share, shape, scale=2)
        best = scipy.optimize.minimize(lambda q: scipy.stats.genpareto.nnlf((q[0], 0, np.exp(q[1])), values), [shape, np.log(2)],
                                       method="Nelder-Mead", options=EXACT)
        row(shape, float(best.x[0]), float(np.exp(best.x[1])), float(-best.fun))


def counts():
    print("beta-binomial")
    mpmath.mp.dps = 50
    for k, n, a, b in ((3, 10, 2., 5.), (9, 10, 2., 5.), (1, 1, .5, .5), (60, 100, .3, .7), (40, 1000, 2., 200.),
                       (100, 1000, 2., 200.), (400, 1000, 2., 200.), (100, 100, .2, 9.)):
        exact = mpmath.fsum(mpmath.binomial(n, j) * mpmath.beta(j + a, n - j + b) for j in range(k, n + 1))
        row(k, n, a, b, float(exact / mpmath.beta(a, b)))
    print("binomial")
    for k, n, p in ((3, 10, .2), (10, 10, .2), (60, 1000, .02), (200, 1000, .02), (50100, 100000, .5)):
        row(k, n, p, float(scipy.stats.binom.sf(k - 1, n, p)))
    hits = np.array([0, 3, 1, 7, 2, 0, 5, 12, 4, 1, 0, 9, 2, 3, 6])
    trials = np.array([50, 60, 40, 80, 50, 30, 70, 90, 60, 40, 50, 75, 45, 55, 65])

    def negative(q):
        a, b = np.exp(q)
        return -np.sum(betaln(hits + a, trials - hits + b) - betaln(a, b))

    best = scipy.optimize.minimize(negative, [0, 2], method="Nelder-Mead", options=EXACT)
    a, b = np.exp(best.x)
    print("maximum likelihood: mean, correlation, log-likelihood")
    row(float(a / (a + b)), float(1 / (a + b + 1)), float(-best.fun))


pareto()
counts()
