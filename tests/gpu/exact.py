# SPDX-License-Identifier: Apache-2.0
"""Floating-point formats in exact arithmetic: what an operation must give, without any machine's floating point."""
from fractions import Fraction
from math import isqrt


class Format:
    """A binary format: bits, bits of its fraction; values are bit patterns."""

    def __init__(self, name, bits, fraction_bits, canonical_nan):
        self.name, self.bits, self.fraction_bits, self.nan = name, bits, fraction_bits, canonical_nan
        self.exponent_bits = bits - 1 - fraction_bits
        self.bias = (1 << (self.exponent_bits - 1)) - 1
        self.exponent_max = (1 << self.exponent_bits) - 1
        self.sign_bit = 1 << (bits - 1)
        self.infinity = self.exponent_max << fraction_bits
        self.least_exponent = 1 - self.bias - fraction_bits  # of the last bit of a subnormal number
        self.largest = self.infinity - 1

    def sign(self, bits):
        return bits >> (self.bits - 1) & 1

    def magnitude(self, bits):
        return bits & (self.sign_bit - 1)

    def is_nan(self, bits):
        return self.magnitude(bits) > self.infinity

    def is_infinite(self, bits):
        return self.magnitude(bits) == self.infinity

    def is_zero(self, bits):
        return self.magnitude(bits) == 0

    def is_subnormal(self, bits):
        return 0 < self.magnitude(bits) < (1 << self.fraction_bits)

    def value(self, bits):
        """Exact value of a finite number."""
        exponent = self.magnitude(bits) >> self.fraction_bits
        fraction = bits & ((1 << self.fraction_bits) - 1)
        if exponent:
            fraction |= 1 << self.fraction_bits
        number = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - self.bias - self.fraction_bits)
        return -number if self.sign(bits) else number

    def flush(self, bits):
        return bits & self.sign_bit if self.is_subnormal(bits) else bits

    def round(self, number, mode="rn", zero_sign=0):
        """The nearest pattern to an exact number, by mode rn rz rm rp; zero_sign: of an exact zero."""
        if number == 0:
            return self.sign_bit if zero_sign else 0
        negative = number < 0
        magnitude = -number if negative else number
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - self.fraction_bits
        exponent = max(exponent - 1, self.least_exponent)
        while magnitude / Fraction(2) ** exponent >= 1 << (self.fraction_bits + 1):
            exponent += 1
        scaled = magnitude / Fraction(2) ** exponent
        whole, rest = divmod(scaled.numerator, scaled.denominator)
        rest = Fraction(rest, scaled.denominator)
        up = {"rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1), "rz": False, "rm": negative and rest > 0,
              "rp": not negative and rest > 0}[mode]
        whole += 1 if up else 0
        # A carry out of the fraction is a carry into the exponent: patterns are ordered like numbers.
        if whole < 1 << self.fraction_bits:
            bits = whole
        else:
            bits = ((exponent - self.least_exponent + 1) << self.fraction_bits) + (whole - (1 << self.fraction_bits))
        if bits >= self.infinity:
            to_infinity = {"rn": True, "rz": False, "rm": negative, "rp": not negative}[mode]
            bits = self.infinity if to_infinity else self.largest
        return bits | (self.sign_bit if negative else 0)


F16 = Format("f16", 16, 10, 0x7fff)
BF16 = Format("bf16", 16, 7, 0x7fff)
F32 = Format("f32", 32, 23, 0x7fffffff)
F64 = Format("f64", 64, 52, None)  # which pattern a new NaN has is not checked
FORMATS = {f.name: f for f in (F16, BF16, F32, F64)}
NAN = "nan"  # any pattern that is not a number


def nan_of(form):
    return NAN if form.nan is None else form.nan


def add(form, a, b, mode="rn"):
    if form.is_nan(a) or form.is_nan(b):
        return nan_of(form)
    if form.is_infinite(a) or form.is_infinite(b):
        if form.is_infinite(a) and form.is_infinite(b) and a != b:
            return nan_of(form)
        return a if form.is_infinite(a) else b
    total = form.value(a) + form.value(b)
    signs = form.sign(a), form.sign(b)
    # An exact zero of opposite signs is +0, but -0 when rounding down.
    zero_sign = signs[0] if signs[0] == signs[1] else int(mode == "rm")
    return form.round(total, mode, zero_sign)


def negate(form, a):
    return a ^ form.sign_bit


def sub(form, a, b, mode="rn"):
    return add(form, a, b if form.is_nan(b) else negate(form, b), mode)


def mul(form, a, b, mode="rn"):
    if form.is_nan(a) or form.is_nan(b):
        return nan_of(form)
    sign = form.sign(a) ^ form.sign(b)
    if form.is_infinite(a) or form.is_infinite(b):
        if form.is_zero(a) or form.is_zero(b):
            return nan_of(form)
        return form.infinity | (form.sign_bit if sign else 0)
    return form.round(form.value(a) * form.value(b), mode, sign)


def div(form, a, b, mode="rn"):
    if form.is_nan(a) or form.is_nan(b):
        return nan_of(form)
    sign = form.sign_bit if form.sign(a) ^ form.sign(b) else 0
    if form.is_infinite(a):
        return nan_of(form) if form.is_infinite(b) else form.infinity | sign
    if form.is_infinite(b):
        return sign
    if form.is_zero(b):
        return nan_of(form) if form.is_zero(a) else form.infinity | sign
    return form.round(form.value(a) / form.value(b), mode, 1 if sign else 0)


def fma(form, a, b, c, mode="rn"):
    if form.is_nan(a) or form.is_nan(b) or form.is_nan(c):
        return nan_of(form)
    sign = form.sign(a) ^ form.sign(b)
    if form.is_infinite(a) or form.is_infinite(b):
        if form.is_zero(a) or form.is_zero(b):
            return nan_of(form)
        product = form.infinity | (form.sign_bit if sign else 0)
        return nan_of(form) if form.is_infinite(c) and c != product else product
    if form.is_infinite(c):
        return c
    total = form.value(a) * form.value(b) + form.value(c)
    zero_sign = sign if sign == form.sign(c) else int(mode == "rm")
    return form.round(total, mode, zero_sign)


def sqrt(form, a, mode="rn"):
    if form.is_nan(a):
        return nan_of(form)
    if form.is_zero(a):
        return a
    if form.sign(a):
        return nan_of(form)
    if form.is_infinite(a):
        return a
    number = form.value(a)
    # More bits than the smallest root has, the last of them odd if something was left out.
    shift = 2 * (form.bias + 2 * form.fraction_bits + 10)
    scaled = number * (1 << shift)
    whole = scaled.numerator // scaled.denominator
    root = isqrt(whole)
    is_exact = scaled.denominator == 1 and root * root == whole
    return form.round(Fraction(2 * root + (0 if is_exact else 1), 2 << (shift // 2)), mode)


def convert(to, form, a, mode="rn"):
    if form.is_nan(a):
        return nan_of(to)
    if form.is_infinite(a):
        return to.infinity | (to.sign_bit if form.sign(a) else 0)
    return to.round(form.value(a), mode, form.sign(a))


def whole(form, a, mode):
    """To an integer, by rni rzi rmi rpi, in the same format."""
    if form.is_nan(a):
        return nan_of(form)
    if form.is_infinite(a):
        return a
    return form.round(Fraction(integer(form.value(a), mode)), "rn", form.sign(a))


def integer(number, mode):
    floor = number.numerator // number.denominator
    rest = number - floor
    if mode == "rmi":
        return floor
    if mode == "rpi":
        return floor + (1 if rest else 0)
    if mode == "rzi":
        return floor + (1 if rest and number < 0 else 0)
    if rest == Fraction(1, 2):
        return floor + (floor & 1)
    return floor + (1 if rest > Fraction(1, 2) else 0)


def saturate(form, a):
    """To 0 .. 1; what is not a number, and -0, give +0."""
    one = form.round(Fraction(1))
    if form.is_nan(a) or form.sign(a) or form.is_zero(a):
        return 0
    return one if form.magnitude(a) > one else a


def less(form, a, b):
    """Of numbers."""
    if form.is_infinite(a) or form.is_infinite(b):
        order = [(-1 if form.sign(x) else 1) * (2 if form.is_infinite(x) else 0) for x in (a, b)]
        return order[0] < order[1]
    return form.value(a) < form.value(b)


def equal(form, a, b):
    return not less(form, a, b) and not less(form, b, a)


def least(form, a, b, greatest=False):
    """min or max: the number where the other is not one; -0 below +0."""
    if form.is_nan(a):
        return nan_of(form) if form.is_nan(b) else b
    if form.is_nan(b):
        return a
    if form.is_zero(a) and form.is_zero(b):
        return (a & b) if greatest else (a | b)
    return a if less(form, a, b) != greatest else b
