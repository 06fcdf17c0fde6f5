#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Three Halide pipelines on a CUDA device and on the processor: blur, matrix product, histogram.

Halide compiles each schedule for the device to PTX when the program runs, and drives it through libcuda. Each result is
compared with that of the processor. Exit status 1: a result differs.
"""
import sys

import numpy
import halide as hl

CPU = hl.Target("host")
DEVICE = hl.Target("host-cuda-cuda_capability_50")


def is_device(target):
    return target.to_string() == DEVICE.to_string()


def blur(target):
    """The mean of 3 x 3 pixels, in tiles of 16 x 16 threads with the rows in shared memory."""
    height, width = 150, 200
    x, y = numpy.mgrid[0:width + 2, 0:height + 2]
    image = hl.Buffer(((x * 7 + y * y * 3 + x * y) % 256).astype(numpy.uint16))
    x, y, xo, yo, xi, yi = (hl.Var(name) for name in ("x", "y", "xo", "yo", "xi", "yi"))
    rows, mean = hl.Func("rows"), hl.Func("mean")
    rows[x, y] = image[x, y] + image[x + 1, y] + image[x + 2, y]
    mean[x, y] = (rows[x, y] + rows[x, y + 1] + rows[x, y + 2]) / 9
    if is_device(target):
        mean.gpu_tile(x, y, xo, yo, xi, yi, 16, 16)
        rows.compute_at(mean, xo).gpu_threads(x, y)
    result = hl.Buffer(hl.UInt(16), [width, height])
    mean.compile_jit(target)
    mean.realize(result)
    result.copy_to_host()
    return numpy.array(result)


def product(target):
    """A matrix product; each thread adds up four columns of a tile."""
    rows, inner, columns = 64, 96, 80
    chance = numpy.random.RandomState(1)
    a = hl.Buffer(chance.rand(rows, inner).astype(numpy.float32))
    b = hl.Buffer(chance.rand(inner, columns).astype(numpy.float32))
    x, y, xo, yo, xi, yi = (hl.Var(name) for name in ("x", "y", "xo", "yo", "xi", "yi"))
    k = hl.RDom([(0, inner)])
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[x, y] = 0.0
    sums[x, y] += a[y, k.x] * b[k.x, x]
    out[x, y] = sums[x, y]
    if is_device(target):
        out.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)
        sums.compute_at(out, xi)
    result = hl.Buffer(hl.Float(32), [columns, rows])
    out.compile_jit(target)
    out.realize(result)
    result.copy_to_host()
    return numpy.array(result)


def histogram(target):
    """How often each byte occurs, by atomic additions."""
    count = 20000
    numbers = numpy.arange(count)
    values = hl.Buffer((numbers * numbers // 7 % 251).astype(numpy.uint8))
    i = hl.Var("i")
    each = hl.RDom([(0, count)])
    bins = hl.Func("bins")
    bins[i] = hl.cast(hl.Int(32), 0)
    bins[hl.i32(values[each.x])] += 1
    if is_device(target):
        io, ii = hl.Var("io"), hl.Var("ii")
        ro, ri = hl.RVar("ro"), hl.RVar("ri")
        bins.gpu_tile(i, io, ii, 64)
        bins.update().atomic().split(each.x, ro, ri, 128).gpu_blocks(ro).gpu_threads(ri)
    result = hl.Buffer(hl.Int(32), [256])
    bins.compile_jit(target)
    bins.realize(result)
    result.copy_to_host()
    return numpy.array(result)


def main():
    is_right = True
    for pipeline, tolerance in ((blur, 0), (product, 1e-4), (histogram, 0)):
        expected, got = pipeline(CPU), pipeline(DEVICE)
        difference = numpy.abs(expected.astype(numpy.float64) - got).max()
        # An image of one colour, or no counts, would be the work of nobody.
        is_same = got.shape == expected.shape and difference <= tolerance and got.std() > 0
        print(f"{pipeline.__name__}: {got.size} values, greatest difference {difference:.2g}: {'PASSED' if is_same else 'FAILED'}")
        is_right = is_right and is_same
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
