// SPDX-License-Identifier: Apache-2.0
#pragma once

// Vectors of doubles as wide as the instruction set, with exp and log of their own: the library's
// take one number at a time. Compiled once for each instruction set (mixture_v2.cc, mixture_v3.cc,
// mixture_v4.cc), so everything here has internal linkage and nothing of the standard library with
// code of its own may be used: a shared inline function compiled for AVX-512 could be linked into
// the program for machines without it. Only operations that round each lane the same on every
// machine are used, so all clones give equal bits.

#include <cstddef>

namespace kansoku::stats::internal {
namespace {  // NOLINT(google-build-namespaces)

#if defined(__AVX512F__)
inline constexpr std::size_t kWidth = 8;
#elif defined(__AVX2__)
inline constexpr std::size_t kWidth = 4;
#else
inline constexpr std::size_t kWidth = 2;
#endif

using Vector = double __attribute__((vector_size(kWidth * sizeof(double))));
using Bits = long long __attribute__((vector_size(kWidth * sizeof(double))));

inline Vector load(const double* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
inline void store(double* to, const Vector& value) {
  __builtin_memcpy(to, &value, sizeof(value));
}
inline Vector all(double value) {
  return Vector{} + value;  // one broadcast
}
inline Bits bits_of(const Vector& value) {
  return __builtin_bit_cast(Bits, value);
}
inline Vector from_bits(const Bits& value) {
  return __builtin_bit_cast(Vector, value);
}

// log 2 in two parts: a product of the first, which has 32 bits, with an exponent is exact.
inline constexpr double kLog2High = 0x1.62e42feep-1;
inline constexpr double kLog2Low = 0x1.a39ef35793c76p-33;
// Adding it leaves the nearest integer in the lowest bits of the sum.
inline constexpr double kToInteger = 0x1.8p52;
inline constexpr int kMantissaBits = 52;

// (exp(r) - 1 - r) / r^2 for |r| <= log(2) / 2, lowest power first: a minimax fit of our own
// (Remez, 60 digits), relative error of exp 3.7e-18.
inline constexpr double kExp[] = {
    0x1.000000000000ap-1,  0x1.55555555554f9p-3,  0x1.55555555507f1p-5,  0x1.1111111127e83p-7,
    0x1.6c16c1844b015p-10, 0x1.a01a0129b4608p-13, 0x1.a01999adcc22fp-16, 0x1.71df262c47695p-19,
    0x1.28adce726e390p-22, 0x1.ad7f02a6aa9a0p-26};

/// exp(x) for x <= 0, error below 1.1 units in the last place; 0 below -708, where exp is 3e-308.
inline Vector exp_negative(const Vector& x) {
  constexpr double kLowest = -708;
  const Vector limit = all(kLowest);
  const Vector clamped = x > limit ? x : limit;
  const Vector shifted = clamped * 0x1.71547652b82fep+0 + kToInteger;
  const Vector n = shifted - kToInteger;
  const Vector r = (clamped - n * kLog2High) - n * kLog2Low;
  Vector q = all(kExp[9]);
#pragma GCC unroll 9
  for (int i = 8; i >= 0; --i)
    q = q * r + kExp[i];
  const Vector p = 1 + (r + r * r * q);
  const Vector scaled = from_bits(bits_of(p) + (bits_of(shifted) << kMantissaBits));
  return x < limit ? Vector{} : scaled;
}

// (2 atanh(s) / s - 2) / s^2 in powers of s^2, lowest first, for |s| <= 0.1717: a minimax fit of
// our own, relative error of log 1.5e-18.
inline constexpr double kLog[] = {0x1.5555555555570p-1, 0x1.999999998880bp-2, 0x1.2492493ba2accp-2,
                                  0x1.c71c567518028p-3, 0x1.746570d07d06bp-3, 0x1.39b487d30b654p-3,
                                  0x1.2e577dca79609p-3};

/// log(x) for finite x >= 1, error below 2 units in the last place; log(1) is 0.
inline Vector log_from_one(const Vector& x) {
  constexpr long long kRootHalf = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2)
  constexpr double kInteger = 0x1p52;
  // x = 2^e m with m from sqrt(1/2) to sqrt(2); e >= 0, so that a logical shift will do.
  const Bits e = (bits_of(x) - kRootHalf) >> kMantissaBits;
  const Vector m = from_bits(bits_of(x) - (e << kMantissaBits));
  const Vector exponent = from_bits(e | bits_of(all(kInteger))) - kInteger;
  const Vector f = m - 1;
  const Vector s = f / (f + 2);
  const Vector z = s * s;
  Vector a = all(kLog[6]);
#pragma GCC unroll 6
  for (int i = 5; i >= 0; --i)
    a = a * z + kLog[i];
  // 2 s = f - s f: the first term is exact, so the small ones are added up before it.
  const Vector rest = s * (z * a - f) + exponent * kLog2Low;
  return exponent * kLog2High + (f + rest);
}

}  // namespace
}  // namespace kansoku::stats::internal
