#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_bodies.py COUNT SEED: a C++ program of COUNT functions body_0, body_1, ... of random shape, and a main that calls each of them
three times through a pointer, once its standard input has a byte or ends, and prints of each how often it was called, and called itself. It ends, and calls the same functions equally often, whatever compiles it. Of every 20 bodies one begins
with a loop whose head is the function's first instruction, and one calls itself last; the rest is drawn."""
import random
import sys

HEAD = """#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <unistd.h>
extern volatile long kept;
volatile long kept = 0;
static long memory[64];
#ifdef __clang__
#define NOCLONE
#else
#define NOCLONE noclone,
#endif
#define BODY(i) extern "C" __attribute__((NOCLONE noinline)) long body_##i(long* p, long n)
// Whoever calls counts. Calls that a body makes of itself are counted apart: the compiler may make rounds of a loop of them.
static long calls[COUNT], own_calls[COUNT];
#define CALL(i, ...) (++calls[i], body_##i(__VA_ARGS__))
#define OWN(i, ...) (++own_calls[i], body_##i(__VA_ARGS__))
extern "C" __attribute__((noinline, cold)) void rarely(long why) { kept = kept + why; }
extern "C" __attribute__((noinline)) long helper(long x) { if (x == 12345) throw std::runtime_error("x"); return x + kept; }
extern "C" __attribute__((noinline)) long throws(long x) { if (x & 1) throw x; return x; }
"""


class Writer:
    """Statements over p (an array of 64), n (small) and a local s."""

    def __init__(self, rng, index):
        self.rng, self.index, self.names = rng, index, 0

    def name(self):
        self.names += 1
        return "v%d" % self.names

    def value(self):
        return self.rng.choice(["n", "s", "p[%d]" % self.rng.randrange(64), str(self.rng.randrange(1, 99)), "(s ^ n)", "(p[1] + s)"])

    def simple(self):
        r = self.rng
        return r.choice([
            "s += %s * %d;" % (self.value(), r.randrange(1, 9)), "s ^= %s >> %d;" % (self.value(), r.randrange(1, 5)),
            "p[%d] = s + %s;" % (r.randrange(64), self.value()), "kept = kept + %s;" % self.value(),
            "s = s %% %d + helper(%s & 1023);" % (r.randrange(50, 99), self.value()),
            "if (s > %d) s -= %s;" % (r.randrange(99), self.value()), "s += (long)std::strlen(\"%s\" + (s & 1));" % ("x" * r.randrange(2, 9))])

    def block(self, depth):
        return " ".join(self.statement(depth) for _ in range(self.rng.randrange(1, 4)))

    def switch(self, depth, inside_loop):
        r = self.rng
        cases = r.randrange(5, 12)
        out = "switch ((unsigned long)%s %% %d) {" % (self.value(), cases + r.randrange(2))
        for case in range(cases):
            end = r.choice(["break;", "break;", "continue;" if inside_loop else "break;", "return s;", ""])
            out += " case %d: { %s } %s" % (case, self.block(depth - 1) if r.random() < 0.3 else self.simple(), end)
        return out + " default: s += 1; }"

    def statement(self, depth):
        r = self.rng
        if depth <= 0 or r.random() < 0.4:
            return self.simple()
        v = self.name()
        return r.choice([
            lambda: "for (long %s = 0; %s < n + %d; ++%s) { %s }" % (v, v, r.randrange(3), v, self.block(depth - 1)),
            lambda: "{ long %s = %d; do { %s } while (--%s > 0); }" % (v, r.randrange(1, 4), self.block(depth - 1), v),
            lambda: "for (long %s = %d; %s-- > 0;) { %s }" % (v, r.randrange(1, 6), v, self.switch(depth - 1, True)),
            lambda: self.switch(depth - 1, False),
            lambda: "if (%s & %d) { %s } else { %s }" % (self.value(), r.randrange(1, 4), self.block(depth - 1), self.block(depth - 1)),
            lambda: "if (__builtin_expect(s == %d, 0)) { rarely(s); %s }" % (r.randrange(999), self.simple()),
            lambda: "try { s += throws(%s); %s } catch (long e) { s += e; %s }" % (self.value(), self.simple(), self.simple()),
            lambda: "for (long %s = 0; %s < 3; ++%s) try { s += throws(n + %s); } catch (long e) { s ^= e; if (e & 4) continue; s += 1; }"
                    % (v, v, v, v),
            lambda: "{ long %s[24]; for (long i = 0; i < 24; ++i) %s[i] = p[i] * s; for (long i = 0; i < 24; ++i) s += %s[i]; }" % (v, v, v),
            lambda: "if (s == %d) return n;" % r.randrange(50),
            lambda: "{ volatile char* %s = (char*)__builtin_alloca((n & 7) * 16 + 16); %s[0] = (char)s; s += %s[0]; }" % (v, v, v),
        ])()


def tail_of(rng, index):
    """A call of a body before this one, so that no call comes back here."""
    if index == 0 or rng.random() > 0.3:
        return "return s;"
    to = max(0, index - rng.randrange(1, 9))
    return rng.choice(["return CALL(%d, p, n & 1);", "s += CALL(%d, p, n & 1); return s;"]) % to


def looping_entry(rng):
    k, at = rng.randrange(1, 9), "*(volatile long*)p"
    return rng.choice([
        "do { %s -= n; } while (%s > 0); return n;" % (at, at),
        "do { %s = %s - n - %d; } while (%s > %d); return *p;" % (at, at, k, at, k),
        "again: kept = kept + %d; if (--n > 0) goto again; return p[0];" % k,
        "while (kept >= 0) { if (--n <= 0) return p[%d]; kept = kept + 1; } return n;" % k,
        "do { if (%s & 1) kept = kept + 1; } while (--n > 0); return kept;" % at,
        "for (;;) { switch (n) { case 0: return p[0]; case 1: n = 0; continue; case 2: n = 1; %s += 2; continue; case 3: n = 2; continue; "
        "case 4: n = 1; continue; case 5: n = 3; %s; continue; default: n = n > 5 ? 5 : 0; } }" % (at, at)])


def calling_itself_last(rng, index):
    k = rng.randrange(1, 9)
    me = "OWN(%d" % index
    return rng.choice([
        "if (n <= 0) return p[0]; p[n & 63] += %d; return %s, p, n - 1);" % (k, me),
        "if (n <= 0) return *p; if (n & 1) { *p += helper(n); return %s, p, n - 1); } *p ^= %d; return %s, p, n - 2);" % (me, k, me),
        "if (__builtin_expect(n <= 0, 1)) return *p; rarely(n); *p += %d; return %s, p, n - 1);" % (k, me),
        "switch (n & 7) { case 0: return *p; case 1: *p += 1; return %s, p, 0); case 2: return %s, p, 1); case 3: rarely(n); return %s, p, 2); "
        "case 4: return %s, p, 1); case 5: *p -= 1; return %s, p, 4); default: return %s, p, 5); }" % ((me,) * 6)])


def calling_itself(rng, index):
    me = "OWN(%d" % index
    return rng.choice([
        "if (n <= 0) return p[0]; long s = %s, p, n - 1); return s + p[n & 63];" % me,
        "if (n <= 1) return n; return %s, p, n - 1) + %s, p, n - 2);" % (me, me),
        "long s = n; for (long i = 0; i < n && n < 4; ++i) s += %s, p, i); return s;" % me])


def interpreter(rng):
    """Jumps through the addresses of labels."""
    ops = " ".join("l%d: s += %d; p[%d] ^= s; if (--n < 0) return s; goto *table[(s + n) & 3];" % (i, rng.randrange(1, 99), i)
                   for i in range(4))
    first = rng.choice(["", "p[5] += n; "])
    return "static const void* const table[] = {&&l0, &&l1, &&l2, &&l3}; long s = n; %sgoto *table[n & 3]; %s" % (first, ops)


def body(rng, index):
    if index % 20 == 7:
        return looping_entry(rng)
    if index % 20 == 13:
        return calling_itself_last(rng, index)
    kind = rng.random()
    if kind < 0.05:
        return calling_itself(rng, index)
    if kind < 0.07:
        return interpreter(rng)
    writer = Writer(rng, index)
    text = " ".join(writer.statement(2) for _ in range(rng.randrange(1, 5)))
    # The statement keeps callers from leaving out the call of what turns out to do nothing.
    return "long s = %s; %s asm volatile(\"\"); %s" % (rng.choice(["0", "n", "*p"]), text, tail_of(rng, index))


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    print("#define COUNT %d\n%s" % (count, HEAD))
    for index in range(count):
        print("BODY(%d) { %s }" % (index, body(random.Random("%d/%d" % (seed, index)), index)))
    print("using Body = long (*)(long*, long);\nstatic Body volatile bodies[] = {%s};" % ", ".join("body_%d" % i for i in range(count)))
    print("""int main() {
  char go = 0;  // until somebody who is to see the calls sends it, or has none to send
  long sum = read(0, &go, 1);
  for (long k = 0; k < COUNT; ++k)
    for (long n = 1; n <= 5; n += 2) {
      for (long i = 0; i < 64; ++i) memory[i] = (i * 37 + n) % 29;
      const Body call = bodies[k];
      ++calls[k];
      try { sum += call(memory, n); } catch (...) { sum += 1; }
    }
  kept = sum;
  for (long k = 0; k < COUNT; ++k) std::printf("body_%ld %ld %ld\\n", k, calls[k], own_calls[k]);
  return 0;
}""")


if __name__ == "__main__":
    main()
