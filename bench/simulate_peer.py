#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The same models on SimPy 3, for bench/simulate_bench.cc: prints key=value pairs on one line.

simulate_peer.py mm50 CUSTOMERS SEED
simulate_peer.py pipelines tuned|naive PIPELINES COMPUTE_SLOTS TRAINING_SLOTS SEED

tuned: draws from numpy, 1,000 at a time; trace as tuples in a list; no garbage collection.
naive: every draw a scalar call of scipy, as a first version would have it.
"""
import gc
import math
import random
import sys
import time

import numpy
import scipy.stats
import simpy

if not simpy.__version__.startswith("3"):
    sys.exit(f"simulate_peer.py: SimPy {simpy.__version__}, but the peer is SimPy 3 (python3-simpy3)")

MEGABYTE = 1e6
BYTES_PER_S = 2e8
WEIGHTS = (0.3, 0.4, 0.2, 0.1)
MEANS = (2.3, 4.5, 6.5, 8.5)
SIGMAS = (0.4, 0.7, 0.8, 0.9)


def queue_of_50(customers, seed):
    servers, rho, waits = 50, 0.9, []
    draws = random.Random(seed)

    def customer(env, resource):
        came = env.now
        with resource.request() as request:
            yield request
            waits.append(env.now - came)
            yield env.timeout(draws.expovariate(1.0))

    def source(env, resource):
        for _ in range(customers):
            yield env.timeout(draws.expovariate(rho * servers))
            env.process(customer(env, resource))

    env = simpy.Environment()
    env.process(source(env, simpy.Resource(env, servers)))
    began = time.process_time()
    env.run()
    took = time.process_time() - began
    print(f"customers_per_s={customers / took:.0f} wq={sum(waits) / len(waits):.6f}")


class Tuned:
    """One number at a time out of blocks of 1,000."""

    def __init__(self, seed):
        rng = numpy.random.default_rng(seed)

        def buffered(block):
            values = []

            def draw():
                nonlocal values
                if not values:
                    values = block().tolist()
                return values.pop()
            return draw

        def training():
            which = rng.choice(4, size=1000, p=WEIGHTS)
            return numpy.exp(rng.normal(numpy.array(MEANS)[which], numpy.array(SIGMAS)[which]))

        self.gap = buffered(lambda: 18.0 * (-numpy.log1p(-numpy.sqrt(rng.random(1000)))) ** (1 / 0.6))
        self.asset = buffered(lambda: rng.lognormal(16, 2, 1000))
        self.training = buffered(training)
        self.short = buffered(lambda: rng.lognormal(math.log(20), 0.8, 1000))
        self.uniform = buffered(lambda: rng.random(1000))


class Naive:
    def __init__(self, seed):
        self.rng = numpy.random.default_rng(seed)

    def gap(self):
        return scipy.stats.exponweib.rvs(2.0, 0.6, scale=18.0, random_state=self.rng)

    def asset(self):
        return scipy.stats.lognorm.rvs(2, scale=math.exp(16), random_state=self.rng)

    def training(self):
        which = self.rng.choice(4, p=WEIGHTS)
        return scipy.stats.lognorm.rvs(SIGMAS[which], scale=math.exp(MEANS[which]), random_state=self.rng)

    def short(self):
        return scipy.stats.lognorm.rvs(0.8, scale=20, random_state=self.rng)

    def uniform(self):
        return self.rng.random()


def pipelines(kind, count, compute_slots, training_slots, seed):
    draws = Tuned(seed) if kind == "tuned" else Naive(seed)
    env = simpy.Environment()
    compute = simpy.Resource(env, compute_slots)
    training = simpy.Resource(env, training_slots)
    trace, sojourns = [], []

    def task(pipeline, name, cluster, size, duration):
        yield env.timeout(size / BYTES_PER_S)
        asked = env.now
        with cluster.request() as request:
            yield request
            wait = env.now - asked
            yield env.timeout(duration)
        yield env.timeout(MEGABYTE / BYTES_PER_S)
        trace.append((env.now, pipeline, name, wait, duration, size))

    def pipeline(number):
        began = env.now
        size = draws.asset()
        yield from task(number, 0, compute, size, 2 + 0.018 * 1.33 ** math.log(size))
        yield from task(number, 1, training, size, draws.training())
        yield from task(number, 2, compute, size, draws.short())
        if draws.uniform() < 0.3:
            yield from task(number, 3, training, MEGABYTE, draws.short())
        if draws.uniform() < 0.2:
            yield from task(number, 4, training, MEGABYTE, draws.short())
        yield from task(number, 5, compute, MEGABYTE, 5.0)
        sojourns.append(env.now - began)

    def source():
        for number in range(count):
            yield env.timeout(draws.gap())
            env.process(pipeline(number))

    if kind == "tuned":
        gc.disable()
    env.process(source())
    began = time.process_time()
    env.run()
    took = time.process_time() - began
    waits = [sum(r[3] for r in trace if r[2] == name) / max(1, sum(r[2] == name for r in trace))
             for name in (0, 1, 2, 5)]
    print(f"pipelines_per_s={count / took:.0f} wait_preprocess={waits[0]:.3f} wait_train={waits[1]:.3f} "
          f"wait_evaluate={waits[2]:.3f} wait_deploy={waits[3]:.3f} sojourn={sum(sojourns) / count:.1f}")


def main(args):
    if len(args) == 3 and args[0] == "mm50":
        queue_of_50(int(args[1]), int(args[2]))
    elif len(args) == 6 and args[0] == "pipelines" and args[1] in ("tuned", "naive"):
        pipelines(args[1], *map(int, args[2:]))
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
