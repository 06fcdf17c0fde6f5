#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes one case for each instruction form: inputs and what must come out, from exact arithmetic of its own.

  forms.py FOLDER      one file a form: FOLDER/add.u32.case
  forms.py --list      the forms

A case file: `ptx` the instruction with %d, %a, %b, %c as operands; `types` of these, destination first; `ulp` how far off a result may be;
then a `row` for each thread: the operands' bits and the result's, in hexadecimal (`nan`: any pattern that is not a number).
"""
import contextlib
import math
import os
import sys
from fractions import Fraction

sys.dont_write_bytecode = True
import exact as n  # noqa: E402
from exact import FORMATS, F16, F32, F64, BF16  # noqa: E402

ROWS_MAX = 96
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS32 = [0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x3f800001, 0x40490fdb, 0x7f7fffff, 0xff7fffff,
            0x7f800000, 0xff800000, 0x7fc00000, 0x4b7fffff, 0x33800000, 0xc2c80000, 0x3eaaaaab]
FLOATS64 = [0, 1 << 63, 1, (1 << 63) | 1, 0x000fffffffffffff, 0x0010000000000000, 0x3ff0000000000000, 0xbff0000000000000,
            0x3ff0000000000001, 0x400921fb54442d18, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
            0x7ff8000000000000, 0x433fffffffffffff, 0x3ca0000000000000, 0xc059000000000000, 0x3fd5555555555555]
FLOATS16 = [0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x4248, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x6400, 0x1000,
            0xd640, 0x3555]
FLOATSB = [0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x3f80, 0xbf80, 0x3f81, 0x4049, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x4b7f, 0x3380,
           0xc2c8, 0x3eab]


def bits_of(kind):
    digits = kind.replace("f16x2", "32").replace("u16x2", "32").replace("bf", "").lstrip("usbf")
    return int(digits)


def is_signed(kind):
    return kind[0] == "s"


def mask(kind):
    return (1 << bits_of(kind)) - 1


def number(kind, bits):
    """The integer that the bits mean."""
    bits &= mask(kind)
    return bits - (1 << bits_of(kind)) if is_signed(kind) and bits >> (bits_of(kind) - 1) else bits


class Lcg:
    """The same inputs every time."""

    def __init__(self, seed):
        self.state = seed * 2862933555777941757 + 3037000493 & (1 << 64) - 1

    def next(self):
        self.state = self.state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        return self.state >> 32 | (self.state & 0xffffffff) << 32 & (1 << 64) - 1


def edges(kind):
    if kind == "f32":
        return FLOATS32
    if kind == "f64":
        return FLOATS64
    if kind == "f16":
        return FLOATS16
    if kind == "bf16":
        return FLOATSB
    if kind == "f16x2":
        return [a << 16 | b for a, b in zip(FLOATS16, reversed(FLOATS16))]
    if kind == "bf16x2":
        return [a << 16 | b for a, b in zip(FLOATSB, reversed(FLOATSB))]
    width = bits_of(kind)
    top = 1 << (width - 1)
    return [0, 1, 2, 3, top - 1, top, top + 1, mask(kind), mask(kind) - 1, 0x55555555555555555 & mask(kind), 0xaaaaaaaaaaaaaaaaa & mask(kind),
            7, 31 & mask(kind), 32 & mask(kind), 33 & mask(kind), 0x123456789abcdef0 & mask(kind), 0xfedcba9876543210 & mask(kind)]


def rows_for(name, kinds):
    """Edges against edges, in an order that brings many pairs early, and then chance."""
    chance = Lcg(sum(map(ord, name)) + len(kinds))
    lists = [edges(kind) for kind in kinds]
    rows = []
    if len(kinds) == 1:
        rows = [(a,) for a in lists[0]]
    else:
        for shift in range(len(lists[0])):
            for i in range(len(lists[0])):
                if len(rows) == ROWS_MAX - 32:
                    break
                rows.append(tuple(values[(i + k * shift) % len(values)] for k, values in enumerate(lists)))
    while len(rows) < ROWS_MAX:
        row = []
        for kind in kinds:
            value = chance.next() & mask(kind)
            if kind in ("f32", "f64", "f16", "bf16") and chance.next() & 3:  # mostly numbers of a size that operations meet in
                form = FORMATS[kind]
                exponent = form.bias + (chance.next() >> 7) % 24 - 12
                value = value & ~(form.infinity) | exponent << form.fraction_bits
            row.append(value)
        rows.append(tuple(row))
    return rows


class Case:
    def __init__(self, name, text, dest, sources, function, ulp=0, rows=None):
        self.name, self.text, self.dest, self.sources, self.function, self.ulp = name, text, dest, sources, function, ulp
        self.rows = rows

    def write(self, folder):
        text = f"ptx {self.text}\ntypes {' '.join([self.dest, *self.sources])}\nulp {self.ulp}\n"
        for row in self.rows or rows_for(self.name, self.sources):
            result = self.function(*row)
            shown = result if isinstance(result, str) else f"{result & mask(self.dest) if self.dest != 'pred' else int(result):x}"
            text += f"row {' '.join(f'{value:x}' for value in row)} {shown}\n"
        write_whole(os.path.join(folder, self.name + ".case"), text)


def write_whole(path, text):
    """Another run of the same test may be reading: what is there already stays, what is new is there as a whole."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
        if file.read() == text:
            return
    with open(f"{path}.{os.getpid()}", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(file.name, path)


CASES = []


def add(name, dest, sources, function, text=None, **more):
    operands = ", ".join(["%d", "%a", "%b", "%c", "%e"][:1 + len(sources)])
    CASES.append(Case(name, text or f"{name} {operands};", dest, sources, function, **more))


# --- integers -------------------------------------------------------------------------------------

def shift(kind, a, count, left):
    width = bits_of(kind)
    if left:
        return a << count if count < width else 0
    return number(kind, a) >> min(count, width)


def divide(kind, a, b):
    x, y = number(kind, a), number(kind, b)
    if y == 0:
        return -1
    q = abs(x) // abs(y)
    return -q if (x < 0) != (y < 0) else q


def remainder(kind, a, b):
    x, y = number(kind, a), number(kind, b)
    if y == 0:
        return x
    r = abs(x) % abs(y)
    return -r if x < 0 else r


def clamp(kind, value):
    low, high = (-(1 << bits_of(kind) - 1), (1 << bits_of(kind) - 1) - 1) if is_signed(kind) else (0, mask(kind))
    return min(max(value, low), high)


def integer_forms():
    for t in INTEGERS:
        def num(bits, t=t):
            return number(t, bits)
        width = bits_of(t)
        two, three = [t, t], [t, t, t]
        add(f"add.{t}", t, two, lambda a, b: a + b)
        add(f"sub.{t}", t, two, lambda a, b: a - b)
        add(f"mul.lo.{t}", t, two, lambda a, b, num=num: num(a) * num(b))
        add(f"mul.hi.{t}", t, two, lambda a, b, num=num, w=width: num(a) * num(b) >> w)
        add(f"mad.lo.{t}", t, three, lambda a, b, c, num=num: num(a) * num(b) + c)
        add(f"mad.hi.{t}", t, three, lambda a, b, c, num=num, w=width: (num(a) * num(b) >> w) + c)
        add(f"div.{t}", t, two, lambda a, b, t=t: divide(t, a, b))
        add(f"rem.{t}", t, two, lambda a, b, t=t: remainder(t, a, b))
        add(f"min.{t}", t, two, lambda a, b, num=num: min(num(a), num(b)))
        add(f"max.{t}", t, two, lambda a, b, num=num: max(num(a), num(b)))
        add(f"sad.{t}", t, three, lambda a, b, c, num=num: c + abs(num(a) - num(b)))
        if width < 64:
            wide = t[0] + str(2 * width)
            add(f"mul.wide.{t}", wide, two, lambda a, b, num=num: num(a) * num(b))
            add(f"mad.wide.{t}", wide, [t, t, wide], lambda a, b, c, num=num: num(a) * num(b) + c)
        if is_signed(t):
            add(f"neg.{t}", t, [t], lambda a: -a)
            add(f"abs.{t}", t, [t], lambda a, num=num: abs(num(a)))
        add(f"shr.{t}", t, [t, "u32"], lambda a, b, t=t: shift(t, a, b, False), rows=shift_rows(t))
    for op in ("add", "sub"):
        add(f"{op}.sat.s32", "s32", ["s32", "s32"],
            lambda a, b, s=1 if op == "add" else -1: clamp("s32", number("s32", a) + s * number("s32", b)))
    add("mad.hi.sat.s32", "s32", ["s32"] * 3,
        lambda a, b, c: clamp("s32", (number("s32", a) * number("s32", b) >> 32) + number("s32", c)))
    for t in ("u32", "s32"):
        def low24(bits, t=t):
            value = bits & 0xffffff
            return value - (1 << 24) if is_signed(t) and value >> 23 else value
        for part, down in (("lo", 0), ("hi", 16)):
            add(f"mul24.{part}.{t}", t, [t, t], lambda a, b, f=low24, d=down: f(a) * f(b) >> d)
            add(f"mad24.{part}.{t}", t, [t, t, t], lambda a, b, c, f=low24, d=down: (f(a) * f(b) >> d) + c)
    add("mad24.hi.sat.s32", "s32", ["s32"] * 3, lambda a, b, c: clamp(
        "s32", (number("s32", a << 8 & 0xffffffff) // 256 * (number("s32", b << 8 & 0xffffffff) // 256) >> 16) + number("s32", c)))
    for op, pick in (("min", min), ("max", max)):
        add(f"{op}.relu.s32", "s32", ["s32", "s32"], lambda a, b, p=pick: max(p(number("s32", a), number("s32", b)), 0))


def shift_rows(kind):
    width = bits_of(kind)
    counts = [0, 1, 2, width // 2, width - 1, width, width + 1, 31, 32, 33, 63, 64, 65, 255, 0xffffffff]
    return [(a, counts[(i + k) % len(counts)]) for k in range(6) for i, a in enumerate(edges(kind)[:16])][:ROWS_MAX]


def bit_forms():
    for t in ("b16", "b32", "b64"):
        two = [t, t]
        add(f"and.{t}", t, two, lambda a, b: a & b)
        add(f"or.{t}", t, two, lambda a, b: a | b)
        add(f"xor.{t}", t, two, lambda a, b: a ^ b)
        add(f"not.{t}", t, [t], lambda a: ~a)
        add(f"cnot.{t}", t, [t], lambda a: int(a == 0))
        add(f"shl.{t}", t, [t, "u32"], lambda a, b, t=t: shift(t, a, b, True), rows=shift_rows(t))
        add(f"shr.{t}", t, [t, "u32"], lambda a, b, t=t: shift(t, a, b, False), rows=shift_rows(t))
        add(f"mov.{t}", t, [t], lambda a: a)
    for t in ("u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"):
        add(f"mov.{t}", t, [t], lambda a: a)
    for t in ("b32", "b64"):
        width = bits_of(t)
        add(f"popc.{t}", "u32", [t], lambda a: bin(a).count("1"))
        add(f"clz.{t}", "u32", [t], lambda a, w=width: w - a.bit_length())
        add(f"brev.{t}", t, [t], lambda a, w=width: int(f"{a:0{w}b}"[::-1], 2))
        add(f"bfi.{t}", t, [t, t, "u32", "u32"], lambda a, b, c, d, w=width: insert(a, b, c, d, w), rows=field_rows(t, 2))
    for t in ("u32", "s32", "u64", "s64"):
        width = bits_of(t)
        add(f"bfind.{t}", "u32", [t], lambda a, t=t: find(t, a))
        add(f"bfind.shiftamt.{t}", "u32", [t], lambda a, t=t, w=width: find(t, a) if find(t, a) == -1 else w - 1 - find(t, a))
        add(f"bfe.{t}", t, [t, "u32", "u32"], lambda a, b, c, t=t: extract(t, a, b, c), rows=field_rows(t, 1))
    for side in ("l", "r"):
        for how in ("clamp", "wrap"):
            add(f"shf.{side}.{how}.b32", "b32", ["b32", "b32", "u32"], lambda a, b, c, s=side, h=how: funnel(a, b, c, s, h),
                rows=[(a, b, c) for (a, c), b in zip(shift_rows("b32"), reversed([r[0] for r in shift_rows("b32")]))])
    for how in ("clamp", "wrap"):
        for t in ("u32", "s32"):
            add(f"szext.{how}.{t}", t, [t, "u32"], lambda a, b, t=t, h=how: sign_or_zero(t, a, b, h), rows=shift_rows("b32"))
        add(f"bmsk.{how}.b32", "b32", ["u32", "u32"], lambda a, b, h=how: bit_mask(a, b, h),
            rows=[(a, b) for a in (0, 1, 5, 31, 32, 40) for b in (0, 1, 8, 31, 32, 33, 255)])
    add("prmt.b32", "b32", ["b32", "b32", "u32"], permute)
    for mode, table in PRMT_MODES.items():
        add(f"prmt.b32.{mode}", "b32", ["b32", "b32", "u32"], lambda a, b, c, rows=table: permute(a, b, rows[c & 3]))
    for ta in ("u32", "s32"):
        for tb in ("u32", "s32"):
            add(f"dp4a.{ta}.{tb}", "s32" if "s" in ta + tb else "u32", [ta, tb, "u32"], lambda a, b, c, x=ta, y=tb: c + sum(
                number(x[0] + "8", a >> 8 * k) * number(y[0] + "8", b >> 8 * k) for k in range(4)))
            for part in ("lo", "hi"):
                add(f"dp2a.{part}.{ta}.{tb}", "s32" if "s" in ta + tb else "u32", [ta, tb, "u32"],
                    lambda a, b, c, x=ta, y=tb, p=part: c + sum(number(x[0] + "16", a >> 16 * k) * number(
                        y[0] + "8", b >> 8 * (k + (2 if p == "hi" else 0))) for k in range(2)))
    for table in (0x00, 0x80, 0xe8, 0x96, 0x1b, 0xff):
        add(f"lop3.b32.{table:02x}", "b32", ["b32"] * 3, lambda a, b, c, t=table: sum(
            (t >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32)),
            text=f"lop3.b32 %d, %a, %b, %c, {table};")


def video(kind, count, operation, end, a, b, c):
    """A SIMD video instruction: bytes or half-words of the kind's sign, each by itself."""
    width = 32 // count
    part = kind[0] + str(width)
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed(kind) else (0, (1 << width) - 1)
    parts = [operation(number(part, a >> width * k), number(part, b >> width * k)) for k in range(count)]
    if end == "add":
        return c + sum(parts)
    if end == "sat":
        parts = [min(max(value, least), most) for value in parts]
    return sum((value & mask(part)) << width * k for k, value in enumerate(parts))


def average(a, b):
    """Half of the sum, and of two numbers that are as near the one that is farther from zero."""
    return int(math.copysign((abs(a + b) + 1) // 2, a + b))


def video_forms():
    operations = {"vadd": (lambda a, b: a + b, ("", "sat")), "vsub": (lambda a, b: a - b, ("", "sat")), "vavrg": (average, ("",)),
                  "vabsdiff": (lambda a, b: abs(a - b), ("", "sat", "add")), "vmin": (min, ("",)), "vmax": (max, ("",))}
    tests = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
             "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}
    for count in (2, 4):
        for t in ("u32", "s32"):
            three = [t, t, "u32"]
            for name, (operation, ends) in operations.items():
                for end in ends:
                    add(f"{name}{count}.{t}.{t}.{t}" + (f".{end}" if end else ""), t, three,
                        lambda a, b, c, t=t, n=count, o=operation, e=end: video(t, n, o, e, a, b, c))
            for how, test in tests.items():
                add(f"vset{count}.{t}.{t}.{how}", t, three,
                    lambda a, b, c, t=t, n=count, o=test: video(t, n, lambda x, y: int(o(x, y)), "", a, b, c))


def pack_forms():
    """Parts in braces, the lowest first."""
    names = ("%a", "%b", "%c", "%e")
    for width, count in ((16, 2), (32, 2), (32, 4), (64, 2), (64, 4)):
        part = width // count
        add(f"pack.b{width}.{count}", f"b{width}", [f"b{part}"] * count,
            lambda *parts, w=part: sum(value << i * w for i, value in enumerate(parts)),
            text=f"mov.b{width} %d, {{{', '.join(names[:count])}}};")
        for nth in range(count):
            parts = ", ".join("%d" if i == nth else "_" for i in range(count))
            add(f"unpack.b{width}.{count}.{nth}", f"b{part}", [f"b{width}"], lambda a, first=nth * part: a >> first,
                text=f"mov.b{width} {{{parts}}}, %a;")


def shuffle_forms():
    """Lanes of their own: what a shuffle moves from lane to lane, executor_test.cc looks at."""
    add("shfl.b32", "b32", ["b32"], lambda a: a, text="activemask.b32 %t; shfl.sync.bfly.b32 %d, %a, 0, 31, %t;")


def insert(a, b, position, length, width):
    position, length = position & 255, length & 255
    result = b
    for i in range(length):
        if position + i < width:
            bit = a >> i & 1 if i < width else 0
            result = result & ~(1 << position + i) | bit << position + i
    return result


def extract(kind, a, position, length):
    position, length, top = position & 255, length & 255, bits_of(kind) - 1
    sign = a >> min(position + length - 1, top) & 1 if is_signed(kind) and length else 0
    return sum((a >> position + i & 1 if i < length and position + i <= top else sign) << i for i in range(top + 1))


def field_rows(kind, values):
    fields = [(0, 0), (0, 1), (0, bits_of(kind)), (4, 8), (31, 1), (31, 8), (bits_of(kind) - 1, 1), (bits_of(kind), 4), (8, 255), (255, 8),
              (0, 31), (1, 31), (16, 16), (256, 257)]
    known = edges(kind)
    return [tuple([known[(i + k * 5) % len(known)] for k in range(values)]) + fields[(i * 3 + i // 14) % len(fields)] for i in range(ROWS_MAX)]


def find(kind, a):
    if is_signed(kind) and a >> (bits_of(kind) - 1):
        a = ~a & mask(kind)
    return a.bit_length() - 1


def funnel(a, b, c, side, how):
    count = c & 31 if how == "wrap" else min(c, 32)
    both = b << 32 | a
    return both << count >> 32 if side == "l" else both >> count


def sign_or_zero(kind, a, length, how):
    length = min(length, 32) if how == "clamp" else length & 31
    if length == 0:
        return 0
    value = a & (1 << length) - 1
    return value - (1 << length) if is_signed(kind) and value >> (length - 1) else value


def bit_mask(position, length, how):
    if how == "clamp":
        position, length = min(position, 32), min(length, 32)
    else:
        position, length = position & 31, length & 31
    return (1 << length) - 1 << position


def permute(a, b, selector):
    both, result = b << 32 | a, 0
    for i in range(4):
        pick = selector >> 4 * i & 15
        byte = both >> 8 * (pick & 7) & 255
        if pick & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * i
    return result


PRMT_MODES = {"f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123), "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
              "ecl": (0x3210, 0x3211, 0x3222, 0x3333), "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232)}


# --- comparisons ----------------------------------------------------------------------------------

ORDERS = {"eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
          "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y}
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(form, op, a, b, ftz=False):
    base, unordered = op[:2], op.endswith("u")
    if ftz:
        a, b = form.flush(a), form.flush(b)
    if op in ("num", "nan"):
        return (form.is_nan(a) or form.is_nan(b)) == (op == "nan")
    if form.is_nan(a) or form.is_nan(b):
        return unordered
    less, equal = n.less(form, a, b), n.equal(form, a, b)
    return {"eq": equal, "ne": not equal, "lt": less, "le": less or equal, "gt": not less and not equal, "ge": not less}[base]


COMBINATIONS = {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}


def add_setp(words, t, function):
    """Alone, and combined with a predicate: with a second destination or as the second one, that predicate negated or not."""
    op, *ftz = words.split(".")
    name = f"setp.{words}.{t}"
    add(name, "pred", [t, t], function)
    for combination, to, predicate, is_negation in (("and", "%d|%over", "%odd_c", False), ("or", "%over|%d", "!%odd_c", True),
                                                    ("xor", "%d", "!%odd_c", False)):
        def combined(a, b, c, f=COMBINATIONS[combination], negated=is_negation, predicate=predicate):
            return f(bool(function(a, b)) != negated, bool(c & 1) != (predicate[0] == "!"))
        add(f"{name}.{combination}", "pred", [t, t, "u32"], combined,
            text=f"setp.{'.'.join([op, combination, *ftz, t])} {to}, %a, %b, {predicate};")


def comparison_forms():
    for t in INTEGERS:
        for op, order in ORDERS.items():
            add_setp(op, t, lambda a, b, t=t, o=order: o(number(t, a), number(t, b)))
        if not is_signed(t):
            for op, same in UNSIGNED_NAMES.items():
                add_setp(op, t, lambda a, b, o=ORDERS[same]: o(a, b))
    for t in ("b16", "b32", "b64"):
        for op in ("eq", "ne"):
            add_setp(op, t, lambda a, b, o=ORDERS[op]: o(a, b))
    for t, form in FORMATS.items():
        for op in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            add_setp(op, t, lambda a, b, f=form, o=op: compare(f, o, a, b))
            if t == "f32":
                add_setp(f"{op}.ftz", t, lambda a, b, f=form, o=op: compare(f, o, a, b, True))
    for t in ("u32", "s32"):
        for op, order in ORDERS.items():
            for to, yes in (("u32", 0xffffffff), ("s32", 0xffffffff), ("f32", 0x3f800000)):
                def set_to(a, b, t=t, o=order, y=yes):
                    return y if o(number(t, a), number(t, b)) else 0
                add(f"set.{op}.{to}.{t}", to, [t, t], set_to)
                add(f"set.{op}.{to}.{t}.xor", to, [t, t, "u32"], lambda a, b, c, f=set_to, y=yes: 0 if bool(f(a, b)) == bool(c & 1) else y,
                    text=f"set.{op}.xor.{to}.{t} %d, %a, %b, %odd_c;")
                add(f"set.{op}.{to}.{t}.and", to, [t, t, "u32"], lambda a, b, c, f=set_to: 0 if c & 1 else f(a, b),
                    text=f"set.{op}.and.{to}.{t} %d, %a, %b, !%odd_c;")
    for t in ("b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"):
        add(f"selp.{t}", t, [t, t, "u32"], lambda a, b, c: a if c & 1 else b, text=f"selp.{t} %d, %a, %b, %odd_c;")
    for t in ("b32", "u32", "s32", "f32", "b64", "f64"):
        add(f"slct.{t}.s32", t, [t, t, "s32"], lambda a, b, c: b if c >> 31 else a)
    for t in ("b32", "f32", "f64"):
        add(f"slct.{t}.f32", t, [t, t, "f32"], lambda a, b, c: b if F32.is_nan(c) or (F32.sign(c) and not F32.is_zero(c)) else a)
    add("slct.ftz.f32.f32", "f32", ["f32"] * 3,
        lambda a, b, c: b if F32.is_nan(c) or (F32.sign(c) and not F32.is_zero(F32.flush(c))) else a)
    for t in ("f32", "f64"):
        form = FORMATS[t]
        tests = {"finite": lambda a, f=form: not f.is_nan(a) and not f.is_infinite(a), "infinite": lambda a, f=form: f.is_infinite(a),
                 "number": lambda a, f=form: not f.is_nan(a), "notanumber": lambda a, f=form: f.is_nan(a),
                 "normal": lambda a, f=form: not (f.is_nan(a) or f.is_infinite(a) or f.is_subnormal(a)),  # zeros, too: seen on an H200
                 "subnormal": lambda a, f=form: f.is_subnormal(a)}
        for name, test in tests.items():
            add(f"testp.{name}.{t}", "pred", [t], test)


def predicate_forms():
    """%over becomes whether the first operand is the lesser one, %odd_c the last bit of the third."""
    begin = "setp.lt.u32 %over, %a, %b; "
    for op, function in COMBINATIONS.items():
        add(f"{op}.pred", "pred", ["u32"] * 3, lambda a, b, c, f=function: f(a < b, bool(c & 1)), text=f"{begin}{op}.pred %d, %over, %odd_c;")
        add(f"{op}.pred.negated", "pred", ["u32"] * 3, lambda a, b, c, f=function: f(a >= b, c & 1 == 0),
            text=f"{begin}{op}.pred %d, !%over, !%odd_c;")
    add("not.pred", "pred", ["u32"] * 2, lambda a, b: a >= b, text=f"{begin}not.pred %d, %over;")
    for value in (0, 1, -1):
        add(f"mov.pred.{value}", "pred", ["u32"], lambda a, v=value: v != 0, text=f"mov.pred %d, {value};")
    add("mov.pred", "pred", ["u32"] * 2, lambda a, b: a < b, text=f"{begin}mov.pred %d, %over;")


# --- floats ---------------------------------------------------------------------------------------

def finished(form, result, ftz, sat):
    if result == n.NAN:
        return 0 if sat else result
    if ftz:
        result = form.flush(result)
    return n.saturate(form, result) if sat else result


def with_flags(form, function, ftz, sat, mode):
    def run(*values):
        if ftz:
            values = [form.flush(value) for value in values]
        return finished(form, function(form, *values, mode), ftz, sat)
    return run


def flag_sets(kind):
    if kind == "f64":
        return [(False, False)]
    return [(False, False), (True, False), (False, True), (True, True)]


def suffix(ftz, sat):
    return (".ftz" if ftz else "") + (".sat" if sat else "")


def float_forms():
    for t in ("f32", "f64"):
        form = FORMATS[t]
        for op, function in (("add", n.add), ("sub", n.sub), ("mul", n.mul)):
            for mode in ("", "rn", "rz", "rm", "rp"):
                for ftz, sat in flag_sets(t):
                    add(f"{op}{'.' + mode if mode else ''}{suffix(ftz, sat)}.{t}", t, [t, t],
                        with_flags(form, function, ftz, sat, mode or "rn"))
        for mode in ("rn", "rz", "rm", "rp"):
            for ftz, sat in flag_sets(t):
                for op in ("fma", "mad"):
                    add(f"{op}.{mode}{suffix(ftz, sat)}.{t}", t, [t, t, t], with_flags(form, n.fma, ftz, sat, mode))
            for ftz in (False, True) if t == "f32" else (False,):
                mark = ".ftz" if ftz else ""
                add(f"div.{mode}{mark}.{t}", t, [t, t], with_flags(form, n.div, ftz, False, mode))
                add(f"sqrt.{mode}{mark}.{t}", t, [t], with_flags(form, n.sqrt, ftz, False, mode))
                one = form.round(Fraction(1))
                add(f"rcp.{mode}{mark}.{t}", t, [t],
                    with_flags(form, lambda f, a, m, one=one: n.div(f, one, a, m), ftz, False, mode))
        add(f"neg.{t}", t, [t], lambda a, f=form: n.NAN if f.is_nan(a) else n.negate(f, a))
        add(f"abs.{t}", t, [t], lambda a, f=form: n.NAN if f.is_nan(a) else f.magnitude(a))
        add(f"copysign.{t}", t, [t, t], lambda a, b, f=form: f.magnitude(b) | a & f.sign_bit)
        for op in ("min", "max"):
            add(f"{op}.{t}", t, [t, t], lambda a, b, f=form, g=op == "max": n.least(f, a, b, g))
    add("neg.ftz.f32", "f32", ["f32"], lambda a: n.NAN if F32.is_nan(a) else n.negate(F32, F32.flush(a)))
    add("abs.ftz.f32", "f32", ["f32"], lambda a: n.NAN if F32.is_nan(a) else F32.magnitude(F32.flush(a)))
    for op in ("min", "max"):
        g = op == "max"

        def strict(a, b, g=g):
            return F32.nan if F32.is_nan(a) or F32.is_nan(b) else n.least(F32, a, b, g)

        def signed(a, b, pick):
            found = pick(F32.magnitude(a), F32.magnitude(b))
            return found if F32.is_nan(found) else F32.magnitude(found) | (a ^ b) & F32.sign_bit
        add(f"{op}.ftz.f32", "f32", ["f32"] * 2, lambda a, b, g=g: n.least(F32, F32.flush(a), F32.flush(b), g))
        add(f"{op}.NaN.f32", "f32", ["f32"] * 2, strict)
        add(f"{op}.ftz.NaN.f32", "f32", ["f32"] * 2, lambda a, b, s=strict: s(F32.flush(a), F32.flush(b)))
        add(f"{op}.xorsign.abs.f32", "f32", ["f32"] * 2, lambda a, b, g=g: signed(a, b, lambda x, y: n.least(F32, x, y, g)))
        add(f"{op}.NaN.xorsign.abs.f32", "f32", ["f32"] * 2, lambda a, b, s=strict: signed(a, b, s))


def nearest(form, value):
    """A double, from the host's mathematics, as the nearest number; compared with a tolerance."""
    if math.isnan(value):
        return form.nan
    if math.isinf(value):
        return form.infinity | (form.sign_bit if value < 0 else 0)
    return form.round(Fraction(value), "rn", math.copysign(1, value) < 0)


def as_double(form, bits):
    if form.is_nan(bits):
        return math.nan
    if form.is_infinite(bits):
        return -math.inf if form.sign(bits) else math.inf
    return math.copysign(float(form.value(bits)), -1 if form.sign(bits) else 1)


def power_of_two(x):
    return math.inf if x > 1000 else 2.0 ** x


def logarithm(x):
    if math.isnan(x) or x < 0:
        return math.nan
    return -math.inf if x == 0 else math.log2(x) if x != math.inf else math.inf


def approximate_forms():
    small = [(bits,) for bits in FLOATS32 if F32.is_nan(bits) or F32.is_infinite(bits) or abs(as_double(F32, bits)) < 100]
    small += [(nearest(F32, -20 + 0.53 * i),) for i in range(76)]
    functions = {"sin.approx": lambda x: math.sin(x) if not math.isinf(x) else math.nan,
                 "cos.approx": lambda x: math.cos(x) if not math.isinf(x) else math.nan,
                 "lg2.approx": logarithm, "ex2.approx": power_of_two, "tanh.approx": math.tanh}
    for op, function in functions.items():
        add(f"{op}.f32", "f32", ["f32"], lambda a, f=function: nearest(F32, f(as_double(F32, a))), ulp=4, rows=small)
        if op != "tanh.approx":
            add(f"{op}.ftz.f32", "f32", ["f32"], lambda a, f=function: F32.flush(nearest(F32, f(as_double(F32, F32.flush(a))))), ulp=4, rows=small)
    for ftz in ("", ".ftz"):
        flags = bool(ftz)
        add(f"rcp.approx{ftz}.f32", "f32", ["f32"], with_flags(F32, lambda f, a, m: n.div(f, 0x3f800000, a), flags, False, "rn"), ulp=1)
        add(f"sqrt.approx{ftz}.f32", "f32", ["f32"], with_flags(F32, n.sqrt, flags, False, "rn"), ulp=1)
        for kind in ("approx", "full"):
            add(f"div.{kind}{ftz}.f32", "f32", ["f32"] * 2, with_flags(F32, n.div, flags, False, "rn"), ulp=2)
        add(f"rsqrt.approx{ftz}.f32", "f32", ["f32"], with_flags(F32, reciprocal_root, flags, False, "rn"), ulp=2)
    add("rsqrt.approx.f64", "f64", ["f64"], lambda a: reciprocal_root(F64, a, "rn"), ulp=2)


def reciprocal_root(form, a, mode):
    if form.is_nan(a) or (form.sign(a) and not form.is_zero(a)):
        return n.nan_of(form)
    if form.is_zero(a):
        return form.infinity | a & form.sign_bit
    if form.is_infinite(a):
        return 0
    value = form.value(a)
    scaled = (1 << 2600) * value.denominator // value.numerator
    return form.round(Fraction(math.isqrt(scaled), 1 << 1300), mode)


def in_pairs(function, bits=16):
    """The same for both halves of 32 bits."""
    def run(*values):
        low = function(*[value & 0xffff for value in values])
        high = function(*[value >> 16 for value in values])
        return (high << 16 | low)
    return run


def half_forms():
    for t in ("f16", "bf16"):
        form = FORMATS[t]
        pair = t + "x2"

        def both(name_head, function, count, name_tail="", **more):
            add(f"{name_head}{name_tail}.{t}", t, [t] * count, function, **more)
            add(f"{name_head}{name_tail}.{pair}", pair, [pair] * count, in_pairs(function), **more)
        for op, function in (("add", n.add), ("sub", n.sub), ("mul", n.mul)):
            both(op, with_flags(form, function, False, False, "rn"), 2)
            both(op + ".rn", with_flags(form, function, False, False, "rn"), 2)
            if t == "f16":
                both(op, with_flags(form, function, True, False, "rn"), 2, ".ftz")
                both(op, with_flags(form, function, False, True, "rn"), 2, ".sat")
        both("fma.rn", with_flags(form, n.fma, False, False, "rn"), 3)
        both("fma.rn", lambda a, b, c, f=form: relu(f, n.fma(f, a, b, c)), 3, ".relu")
        if t == "f16":
            both("fma.rn", with_flags(form, n.fma, True, False, "rn"), 3, ".ftz")
            both("fma.rn", with_flags(form, n.fma, False, True, "rn"), 3, ".sat")
        for op in ("min", "max"):
            both(op, lambda a, b, f=form, g=op == "max": n.least(f, a, b, g), 2)
            both(op, lambda a, b, f=form, g=op == "max": f.nan if f.is_nan(a) or f.is_nan(b) else n.least(f, a, b, g), 2, ".NaN")
        both("min", lambda a, b, f=form: n.least(f, f.flush(a), f.flush(b)), 2, ".ftz") if t == "f16" else None
        both("max", lambda a, b, f=form: n.least(f, f.flush(a), f.flush(b), True), 2, ".ftz") if t == "f16" else None
        both("neg", lambda a, f=form: n.negate(f, a), 1)
        both("abs", lambda a, f=form: f.magnitude(a), 1)
        both("mov", lambda a: a, 1)
        # ex2 of bfloats exists with .ftz only.
        both("tanh.approx", lambda a, f=form: nearest(f, math.tanh(as_double(f, a))), 1, ulp=1)
        if t == "f16":
            both("ex2.approx", lambda a: nearest(F16, power_of_two(as_double(F16, a))), 1, ulp=1)
        else:
            both("ex2.approx", lambda a: BF16.flush(nearest(BF16, power_of_two(as_double(BF16, BF16.flush(a))))), 1, ".ftz", ulp=1)


def relu(form, bits):
    return bits if form.is_nan(bits) or not form.sign(bits) else 0


# --- conversions ----------------------------------------------------------------------------------

ALL_INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")


def to_integer(kind, form, a, mode, ftz=False):
    if ftz:
        a = form.flush(a)
    if form.is_nan(a):
        return 0
    if form.is_infinite(a):
        return clamp(kind, -(1 << 70) if form.sign(a) else 1 << 70)
    return clamp(kind, n.integer(form.value(a), mode))


def conversion_forms():
    for to in ALL_INTEGERS:
        for source in ALL_INTEGERS:
            add(f"cvt.{to}.{source}", to, [source], lambda a, s=source: number(s, a))
            add(f"cvt.sat.{to}.{source}", to, [source], lambda a, s=source, t=to: clamp(t, number(s, a)))
    for source in ALL_INTEGERS:
        for to, form in FORMATS.items():
            add(f"cvt.rn.{to}.{source}", to, [source], lambda a, s=source, f=form: f.round(Fraction(number(s, a))))
    for mode in ("rz", "rm", "rp"):
        for source in ("u32", "s32", "u64", "s64"):
            add(f"cvt.{mode}.f32.{source}", "f32", [source], lambda a, s=source, m=mode: F32.round(Fraction(number(s, a)), m))
            if "64" in source:
                add(f"cvt.{mode}.f64.{source}", "f64", [source], lambda a, s=source, m=mode: F64.round(Fraction(number(s, a)), m))
        add(f"cvt.{mode}.f32.f64", "f32", ["f64"], lambda a, m=mode: n.convert(F32, F64, a, m))
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for to in ALL_INTEGERS:
            for source in ("f32", "f64", "f16"):
                add(f"cvt.{mode}.{to}.{source}", to, [source], lambda a, t=to, f=FORMATS[source], m=mode: to_integer(t, f, a, m))
            if bits_of(to) >= 32:
                add(f"cvt.{mode}.ftz.{to}.f32", to, ["f32"], lambda a, t=to, m=mode: to_integer(t, F32, a, m, True))
        for t in ("f32", "f64", "f16"):
            add(f"cvt.{mode}.{t}.{t}", t, [t], lambda a, f=FORMATS[t], m=mode: n.whole(f, a, m))
        add(f"cvt.{mode}.ftz.f32.f32", "f32", ["f32"], lambda a, m=mode: n.whole(F32, F32.flush(a), m))
    float_conversions()


def float_conversions():
    def one(name, to, source, ftz=False, sat=False, positive=False):
        def run(a):
            if ftz and source == "f32":
                a = FORMATS[source].flush(a)
            result = n.convert(FORMATS[to], FORMATS[source], a)
            if result == n.NAN:
                return 0 if sat else result
            if ftz and to == "f32":
                result = F32.flush(result)
            if positive:
                result = relu(FORMATS[to], result)
            return n.saturate(FORMATS[to], result) if sat else result
        add(name, to, [source], run)
    one("cvt.f32.f32", "f32", "f32")
    one("cvt.ftz.f32.f32", "f32", "f32", ftz=True)
    one("cvt.sat.f32.f32", "f32", "f32", sat=True)
    one("cvt.ftz.sat.f32.f32", "f32", "f32", ftz=True, sat=True)
    one("cvt.f64.f32", "f64", "f32")
    one("cvt.ftz.f64.f32", "f64", "f32", ftz=True)
    one("cvt.rn.f32.f64", "f32", "f64")
    one("cvt.rn.ftz.f32.f64", "f32", "f64", ftz=True)
    one("cvt.rn.sat.f32.f64", "f32", "f64", sat=True)
    one("cvt.sat.f64.f64", "f64", "f64", sat=True)
    one("cvt.f32.f16", "f32", "f16")
    one("cvt.ftz.f32.f16", "f32", "f16", ftz=True)
    one("cvt.f64.f16", "f64", "f16")
    one("cvt.rn.f16.f32", "f16", "f32")
    one("cvt.rn.ftz.f16.f32", "f16", "f32", ftz=True)
    one("cvt.rn.sat.f16.f32", "f16", "f32", sat=True)
    one("cvt.rn.relu.f16.f32", "f16", "f32", positive=True)
    one("cvt.rn.f16.f64", "f16", "f64")
    one("cvt.f32.bf16", "f32", "bf16")
    one("cvt.rn.bf16.f32", "bf16", "f32")
    one("cvt.rn.relu.bf16.f32", "bf16", "f32", positive=True)
    for t, form, modes in (("f16", F16, ("rz", "rm", "rp")), ("bf16", BF16, ("rz",))):
        for mode in modes:
            add(f"cvt.{mode}.{t}.f32", t, ["f32"], lambda a, f=form, m=mode: n.convert(f, F32, a, m))
        add(f"cvt.rz.relu.{t}.f32", t, ["f32"], lambda a, f=form: relu(f, n.convert(f, F32, a, "rz")))
    for t, form in (("f16", F16), ("bf16", BF16)):
        for mark in ("", ".relu"):
            def two(a, b, f=form, p=bool(mark)):
                parts = [n.convert(f, F32, value) for value in (a, b)]
                parts = [relu(f, part) if p else part for part in parts]
                return parts[0] << 16 | parts[1]
            add(f"cvt.rn{mark}.{t}x2.f32", t + "x2", ["f32", "f32"], two)
    add("cvt.rna.tf32.f32", "b32", ["f32"], to_tf32)


def to_tf32(a):
    """10 bits of fraction are kept; to nearest, ties away from zero."""
    if F32.is_nan(a) or F32.is_infinite(a):
        return F32.nan if F32.is_nan(a) else a
    magnitude = abs(F32.value(a))
    exponent = max(a >> 23 & 0xff, 1) - F32.bias
    step = Fraction(2) ** (exponent - 10)
    rounded = (magnitude / step + Fraction(1, 2)).__floor__() * step
    return F32.round(rounded, "rn") | a & F32.sign_bit


def carry_forms():
    """A chain of two: the second instruction shows the carry of the first."""
    for t in ("u32", "s32", "u64", "s64"):
        width = bits_of(t)
        full = (1 << width) - 1
        def number_of(bits, t=t):
            return number(t, bits)
        add(f"add.cc.{t}.sum", t, [t, t], lambda a, b: a + b, text=f"add.cc.{t} %d, %a, %b;")
        add(f"sub.cc.{t}.difference", t, [t, t], lambda a, b: a - b, text=f"sub.cc.{t} %d, %a, %b;")
        for op, extra in (("addc.cc", 1), ("subc.cc", -1)):
            begin = f"add.cc.{t} %d, -1, 1; " if extra > 0 else f"sub.cc.{t} %d, 0, 1; "
            add(f"{op}.{t}.sum", t, [t, t], lambda a, b, s=extra: a + s * b + s, text=f"{begin}{op}.{t} %d, %a, %b;")
        for part in ("lo", "hi"):
            down = 0 if part == "lo" else width
            add(f"mad.{part}.cc.{t}.sum", t, [t] * 3, lambda a, b, c, f=number_of, d=down: (f(a) * f(b) >> d) + c,
                text=f"mad.{part}.cc.{t} %d, %a, %b, %c;")
            add(f"madc.{part}.cc.{t}.sum", t, [t] * 3, lambda a, b, c, f=number_of, d=down: (f(a) * f(b) >> d) + c + 1,
                text=f"add.cc.{t} %d, -1, 1; madc.{part}.cc.{t} %d, %a, %b, %c;")
        add(f"add.cc.{t}", t, [t, t], lambda a, b, w=width: a + b >> w, text=f"add.cc.{t} %d, %a, %b; addc.{t} %d, 0, 0;")
        add(f"addc.cc.{t}", t, [t, t], lambda a, b, w=width: a + b + 1 >> w,
            text=f"add.cc.{t} %d, -1, 1; addc.cc.{t} %d, %a, %b; addc.{t} %d, 0, 0;")
        add(f"addc.{t}", t, [t, t], lambda a, b: a + b + 1, text=f"add.cc.{t} %d, -1, 1; addc.{t} %d, %a, %b;")
        add(f"sub.cc.{t}", t, [t, t], lambda a, b, f=full: -int(a < b), text=f"sub.cc.{t} %d, %a, %b; subc.{t} %d, 0, 0;")
        add(f"subc.{t}", t, [t, t], lambda a, b: a - b - 1, text=f"sub.cc.{t} %d, 0, 1; subc.{t} %d, %a, %b;")
        add(f"subc.cc.{t}", t, [t, t], lambda a, b: -int(a - b - 1 < 0),
            text=f"sub.cc.{t} %d, 0, 1; subc.cc.{t} %d, %a, %b; subc.{t} %d, 0, 0;")
        low = f"mad.lo.cc.{t}"
        add(low, t, [t] * 3, lambda a, b, c, w=width, f=full: (a * b & f) + c >> w, text=f"{low} %d, %a, %b, %c; addc.{t} %d, 0, 0;")
        add(f"madc.lo.{t}", t, [t] * 3, lambda a, b, c: a * b + c + 1, text=f"add.cc.{t} %d, -1, 1; madc.lo.{t} %d, %a, %b, %c;")
        add(f"madc.lo.cc.{t}", t, [t] * 3, lambda a, b, c, w=width, f=full: (a * b & f) + c + 1 >> w,
            text=f"add.cc.{t} %d, -1, 1; madc.lo.cc.{t} %d, %a, %b, %c; addc.{t} %d, 0, 0;")

        def high(a, b, t=t, w=width):
            return number(t, a) * number(t, b) >> w & (1 << w) - 1
        add(f"mad.hi.cc.{t}", t, [t] * 3, lambda a, b, c, h=high, w=width: h(a, b) + c >> w,
            text=f"mad.hi.cc.{t} %d, %a, %b, %c; addc.{t} %d, 0, 0;")
        add(f"madc.hi.{t}", t, [t] * 3, lambda a, b, c, h=high: h(a, b) + c + 1, text=f"add.cc.{t} %d, -1, 1; madc.hi.{t} %d, %a, %b, %c;")
        add(f"madc.hi.cc.{t}", t, [t] * 3, lambda a, b, c, h=high, w=width: h(a, b) + c + 1 >> w,
            text=f"add.cc.{t} %d, -1, 1; madc.hi.cc.{t} %d, %a, %b, %c; addc.{t} %d, 0, 0;")


# --- memory ---------------------------------------------------------------------------------------

MEMORY_TYPES = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
# Where a case may put things, 32 bytes a thread: behind the results in global memory, and in shared and local memory.
PLACES = {"global": "%z+32", "generic": "%z+32", "shared": "%s", "local": "%l"}
# What it may only read: %p the row of inputs in global memory; %k in constant memory and %h among the parameters 256 bytes each.
TABLES = {"const": "%k", "param": "%h"}
TABLE = bytes(i * 37 + 11 & 255 for i in range(256))


def memory_op(op, space):
    return op if space == "generic" else f"{op}.{space}"


def at(place, offset):
    """An address: a register or a register and an offset, and more of it."""
    base, _, begin = place.partition("+")
    return f"[{base}+{int(begin or 0) + offset}]"


def put(space, values):
    """Stores of 64 bits each."""
    return "".join(f"{memory_op('st', space)}.b64 {at(PLACES[space], 8 * i)}, {value}; " for i, value in enumerate(values))


def in_table(a, first, width):
    """What a case finds in a table, which looks where bits 5 to 7 of its first operand say."""
    return int.from_bytes(TABLE[(a & 0xe0) + first:(a & 0xe0) + first + width // 8], "little")


def from_table(space):
    return f"and.b64 %m, %a, 0xe0; add.u64 %m, %m, {TABLES[space]}; "


def register_of(kind):
    """8 bits live in 16."""
    return f"b{max(bits_of(kind), 16)}"


def memory_forms():
    for t in MEMORY_TYPES:
        width = bits_of(t)
        wide = "f" + str(width) if t[0] == "f" else "s64" if is_signed(t) else "u64"

        def loaded(a, t=t, w=width):
            return number(t, a) if is_signed(t) else a & (1 << w) - 1
        for space in ("global", "generic"):
            add(f"ld.{space}.{t}", wide, ["b64"], loaded, text=f"{memory_op('ld', space)}.{t} %d, [%p];")
        for space in ("shared", "local"):
            add(f"ld.{space}.{t}", wide, ["b64"], loaded, text=f"{put(space, ['%a'])}ld.{space}.{t} %d, [{PLACES[space]}];")
            # Every lane at its own offset.
            add(f"ld.{space}.{t}.apart", wide, ["b64"], loaded, text=f"and.b64 %m, %a, 24; add.u64 %m, %m, {PLACES[space]}; "
                f"st.{space}.b64 [%m], %a; ld.{space}.{t} %d, [%m];")
        for space in TABLES:
            add(f"ld.{space}.{t}", wide, ["b64"], lambda a, f=loaded, w=width: f(in_table(a, 0, w)),
                text=f"{from_table(space)}ld.{space}.{t} %d, [%m];")
            add(f"ld.{space}.{t}.same", wide, ["b64"], lambda a, f=loaded, w=width: f(in_table(0, 40, w)),
                text=f"ld.{space}.{t} %d, [{space}_bytes+40];")
        for space, place in PLACES.items():
            add(f"st.{space}.{t}", "u64", [register_of(t)], lambda a, w=width: a & (1 << w) - 1,
                text=f"{put(space, ['0'])}{memory_op('st', space)}.{t} [{place}], %a; {memory_op('ld', space)}.b64 %d, [{place}];")
    for width in (8, 16, 32, 64):
        for count in (2, 4):
            vector_forms(width, count)
    widening_forms()
    atomic_forms()


def vector_forms(width, count):
    """One case an element."""
    t = f"b{width}"
    for nth in range(count):
        def element(a, b, c, e, first=nth * width, w=width):
            return (a | b << 64 | c << 128 | e << 192) >> first & (1 << w) - 1
        parts = f"{{{', '.join('%d' if i == nth else '_' for i in range(count))}}}"
        for space in ("global", "generic"):
            add(f"ld.{space}.v{count}.{t}.{nth}", "u64", ["b64"] * 4, element, text=f"{memory_op('ld', space)}.v{count}.{t} {parts}, [%p];")
        for space in ("shared", "local"):
            add(f"ld.{space}.v{count}.{t}.{nth}", "u64", ["b64"] * 4, element,
                text=f"{put(space, ['%a', '%b', '%c', '%e'])}ld.{space}.v{count}.{t} {parts}, [{PLACES[space]}];")
        for space in TABLES:
            add(f"ld.{space}.v{count}.{t}.{nth}", "u64", ["b64"], lambda a, first=nth * width // 8, w=width: in_table(a, first, w),
                text=f"{from_table(space)}ld.{space}.v{count}.{t} {parts}, [%m];")
    words = max(1, width * count // 64)
    for space, place in PLACES.items():
        for word in range(words):
            def stored(*values, first=word * 64, w=width):
                return sum((value & (1 << w) - 1) << i * w for i, value in enumerate(values)) >> first & (1 << 64) - 1
            add(f"st.{space}.v{count}.{t}.{word}", "u64", [register_of(t)] * count, stored,
                text=f"{put(space, ['0'] * words)}{memory_op('st', space)}.v{count}.{t} [{place}], "
                     f"{{{', '.join(['%a', '%b', '%c', '%e'][:count])}}}; {memory_op('ld', space)}.b64 %d, {at(place, 8 * word)};")


def widening_forms():
    """Steps that stand in no program: a register wider than what is loaded into it or stored from it."""
    for source, targets in (("s8", ("s16", "s32", "s64")), ("s16", ("s32", "s64")), ("s32", ("s64",)), ("u32", ("u64",))):
        for to in targets:
            add(f"extend.{source}.b{bits_of(to)}", to, ["b64"], lambda a, s=source: number(s, a), text=f"ld.global.{source} %d, [%p];")
    add("truncate.b64", "u64", ["b64"], lambda a: a & 0xffffffff,
        text=f"{put('global', ['0'])}st.global.b32 [{PLACES['global']}], %a; ld.global.b64 %d, [{PLACES['global']}];")


def atomic_forms():
    def signed(t, f):
        return lambda a, b, t=t, f=f: f(number(t, a), number(t, b))
    operations = [(f"add.{t}", t, lambda a, b: a + b) for t in ("u32", "s32", "u64")]
    operations += [("add.f32", "f32", lambda a, b: n.add(F32, a, b)), ("add.f64", "f64", lambda a, b: n.add(F64, a, b)),
                   ("add.f16", "f16", lambda a, b: n.add(F16, a, b)), ("add.bf16", "bf16", lambda a, b: n.add(BF16, a, b)),
                   ("add.f16x2", "f16x2", in_pairs(lambda a, b: n.add(F16, a, b))),
                   ("add.bf16x2", "bf16x2", in_pairs(lambda a, b: n.add(BF16, a, b)))]
    for t in ("u32", "s32", "u64", "s64"):
        operations += [(f"min.{t}", t, signed(t, min)), (f"max.{t}", t, signed(t, max))]
    operations += [("inc.u32", "u32", lambda a, b: 0 if a >= b else a + 1), ("dec.u32", "u32", lambda a, b: b if a == 0 or a > b else a - 1)]
    for t in ("b32", "b64"):
        operations += [(f"and.{t}", t, lambda a, b: a & b), (f"or.{t}", t, lambda a, b: a | b), (f"xor.{t}", t, lambda a, b: a ^ b),
                       (f"exch.{t}", t, lambda a, b: b)]
    for space, place in (("global", PLACES["global"]), ("shared", PLACES["shared"])):
        for name, t, function in operations:
            width = bits_of(t)
            noftz = ".noftz" if "16" in t else ""
            text = name.replace("add.", f"add{noftz}.")
            begin = f"st.{space}.b{width} [{place}], %a; "
            add(f"atom.{space}.{name}.old", f"b{width}", [t, t], lambda a, b: a, text=f"{begin}atom.{space}.{text} %d, [{place}], %b;")
            add(f"atom.{space}.{name}", t, [t, t], function,
                text=f"{begin}atom.{space}.{text} %d, [{place}], %b; ld.{space}.b{width} %d, [{place}];")
            if not name.startswith("exch"):
                add(f"red.{space}.{name}", t, [t, t], function,
                    text=f"{begin}red.{space}.{text} [{place}], %b; ld.{space}.b{width} %d, [{place}];")
        for t in ("b16", "b32", "b64"):
            width = bits_of(t)
            begin = f"st.{space}.b{width} [{place}], %a; "
            rows = [(a, b, c) for i, a in enumerate(edges(t)) for b in (a, edges(t)[i - 1]) for c in (edges(t)[i - 3],)]
            add(f"atom.{space}.cas.{t}.old", t, [t] * 3, lambda a, b, c: a, text=f"{begin}atom.{space}.cas.{t} %d, [{place}], %b, %c;", rows=rows)
            add(f"atom.{space}.cas.{t}", t, [t] * 3, lambda a, b, c: c if a == b else a, rows=rows,
                text=f"{begin}atom.{space}.cas.{t} %d, [{place}], %b, %c; ld.{space}.b{width} %d, [{place}];")


def main():
    for make in (integer_forms, bit_forms, video_forms, pack_forms, shuffle_forms, comparison_forms, predicate_forms, float_forms, approximate_forms, half_forms,
                 conversion_forms, carry_forms, memory_forms):
        make()
    names = [case.name for case in CASES]
    if len(set(names)) != len(names):
        sys.exit(f"forms.py: twice: {sorted(name for name in set(names) if names.count(name) > 1)}")
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names))
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for case in CASES:
        case.write(sys.argv[1])
    print(f"{len(CASES)} forms")


if __name__ == "__main__":
    main()
