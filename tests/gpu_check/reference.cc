// SPDX-License-Identifier: Apache-2.0
// Compiled with -frounding-math; volatile keeps the compiler from working anything out before.
#include "reference.h"

#include <cfenv>
#include <cmath>
#include <limits>

namespace gpu_check {

namespace {

// The rounding mode of this thread, for as long as it lives.
class Rounding {
 public:
  explicit Rounding(Round round) : before_(std::fegetround()) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(kModes[static_cast<int>(round)]);
  }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;
  ~Rounding() { std::fesetround(before_); }

 private:
  int before_;
};

using Exact = __float128;  // 113 bits of mantissa

template <class T, class F>
T under(Round round, F work) {
  const Rounding rounding(round);
  volatile T result = work();
  return result;
}
template <class T>
T sum(T a, T b, Round round) {
  volatile T x = a, y = b;
  return under<T>(round, [&] { return x + y; });
}
template <class T>
T product(T a, T b, Round round) {
  volatile T x = a, y = b;
  return under<T>(round, [&] { return x * y; });
}
template <class T>
T quotient(T a, T b, Round round) {
  volatile T x = a, y = b;
  return under<T>(round, [&] { return x / y; });
}
template <class T>
T square_root(T a, Round round) {
  volatile T x = a;
  return under<T>(round, [&] { return std::sqrt(x); });
}
template <class T>
T fused(T a, T b, T d, Round round) {
  volatile T x = a, y = b, z = d;
  return under<T>(round, [&] { return std::fma(x, y, z); });
}

// Integers of 2^(the place of the last bit of `format` at value), rounded.
std::uint16_t pack(Exact value, bool is_negative, Format format, Round round) {
  const int bias = (1 << (format.exponent - 1)) - 1, least = 1 - bias - format.mantissa;
  const std::uint16_t sign = static_cast<std::uint16_t>(is_negative ? 0x8000 : 0);
  if (is_negative) value = -value;
  int place = least;
  Exact scaled = value;
  for (int i = least; i < 0; ++i)
    scaled *= 2;
  while (scaled >= static_cast<Exact>(2LL << format.mantissa)) {
    scaled /= 2;
    ++place;
    if (place > 2000) break;  // an infinity
  }
  long long whole_part = place > 2000 ? 0 : static_cast<long long>(scaled);
  const Exact rest = scaled - static_cast<Exact>(whole_part);
  const Exact half = 0.5;
  const bool is_up = round == Round::kNearest ? rest > half || (rest == half && whole_part % 2 != 0)
                     : round == Round::kUp    ? rest > 0 && !is_negative
                     : round == Round::kDown  ? rest > 0 && is_negative
                                              : false;
  if (is_up) ++whole_part;
  const long long infinity = static_cast<long long>((1 << format.exponent) - 1) << format.mantissa;
  // The mantissa's hidden bit adds one to the exponent.
  long long bits = whole_part + (static_cast<long long>(place - least) << format.mantissa);
  if (place > 2000) {
    bits = infinity;
  } else if (bits >= infinity) {
    const bool is_cut = round == Round::kZero || (round == Round::kUp && is_negative) ||
                        (round == Round::kDown && !is_negative);
    bits = is_cut ? infinity - 1 : infinity;
  }
  return static_cast<std::uint16_t>(sign | bits);
}

long double function(Function which, long double x) {
  switch (which) {
    case Function::kExp:
      return std::exp(x);
    case Function::kExp2:
      return std::exp2(x);
    case Function::kExp10:
      return std::pow(10.0L, x);
    case Function::kExpm1:
      return std::expm1(x);
    case Function::kLog:
      return std::log(x);
    case Function::kLog2:
      return std::log2(x);
    case Function::kLog10:
      return std::log10(x);
    case Function::kLog1p:
      return std::log1p(x);
    case Function::kSin:
      return std::sin(x);
    case Function::kCos:
      return std::cos(x);
    case Function::kTan:
      return std::tan(x);
    case Function::kAsin:
      return std::asin(x);
    case Function::kAcos:
      return std::acos(x);
    case Function::kAtan:
      return std::atan(x);
    case Function::kSinh:
      return std::sinh(x);
    case Function::kTanh:
      return std::tanh(x);
    case Function::kAsinh:
      return std::asinh(x);
    case Function::kAtanh:
      return std::atanh(x);
    case Function::kErf:
      return std::erf(x);
    case Function::kCbrt:
      return std::cbrt(x);
    case Function::kSqrt:
      return std::sqrt(x);
    case Function::kRsqrt:
      return 1 / std::sqrt(x);
    case Function::kReciprocal:
      return 1 / x;
  }
  return 0;
}

double ulps(long double exact, double got, bool is_float) {
  const double rounded =
      is_float ? static_cast<double>(static_cast<float>(exact)) : static_cast<double>(exact);
  if (std::isnan(rounded) || std::isnan(got))
    return std::isnan(rounded) && std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  if (rounded == got) return 0;
  int exponent = 0;
  std::frexp(std::fabs(exact), &exponent);
  const int bits = is_float ? 24 : 53, least = is_float ? -149 : -1074;
  const int place = exponent - bits < least || exact == 0 ? least : exponent - bits;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - rounded) *
                             std::ldexp(1.0L, -place));
}

}  // namespace

float add(float a, float b, Round round) {
  return sum(a, b, round);
}
double add(double a, double b, Round round) {
  return sum(a, b, round);
}
float multiply(float a, float b, Round round) {
  return product(a, b, round);
}
double multiply(double a, double b, Round round) {
  return product(a, b, round);
}
float divide(float a, float b, Round round) {
  return quotient(a, b, round);
}
double divide(double a, double b, Round round) {
  return quotient(a, b, round);
}
float root(float a, Round round) {
  return square_root(a, round);
}
double root(double a, Round round) {
  return square_root(a, round);
}
float fuse(float a, float b, float d, Round round) {
  return fused(a, b, d, round);
}
double fuse(double a, double b, double d, Round round) {
  return fused(a, b, d, round);
}

float narrow(double a, Round round) {
  volatile double x = a;
  return under<float>(round, [&] { return static_cast<float>(x); });
}
float from_integer(std::int64_t a, Round round) {
  volatile std::int64_t x = a;
  return under<float>(round, [&] { return static_cast<float>(x); });
}
float from_integer(std::uint64_t a, Round round) {
  // By halves that double holds exactly: their sum in long double is exact, too.
  volatile long double x =
      static_cast<long double>(a >> 32) * 4294967296.0L + static_cast<long double>(a & 0xffffffffU);
  return under<float>(round, [&] { return static_cast<float>(x); });
}
double whole(double a, Round round) {
  volatile double x = a;
  return under<double>(round, [&] { return std::nearbyint(x); });
}

double widen(std::uint16_t bits, Format format) {
  const int exponent = (bits >> format.mantissa) & ((1 << format.exponent) - 1);
  const int mantissa = bits & ((1 << format.mantissa) - 1);
  const int bias = (1 << (format.exponent - 1)) - 1;
  double value;
  if (exponent == (1 << format.exponent) - 1)
    value = mantissa != 0 ? std::nan("") : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(mantissa, 1 - bias - format.mantissa);
  else
    value = std::ldexp(mantissa + (1 << format.mantissa), exponent - bias - format.mantissa);
  return (bits & 0x8000) != 0 ? -value : value;
}

std::uint16_t round_to(double value, Format format, Round round) {
  if (std::isnan(value)) return 0x7fff;
  return pack(value, std::signbit(value), format, round);
}

std::uint16_t fuse(std::uint16_t a, std::uint16_t b, std::uint16_t d, Format format) {
  const double x = widen(a, format), y = widen(b, format), z = widen(d, format);
  const double nearly = std::fma(x, y, z);  // its special values and its sign are right
  if (std::isnan(nearly)) return 0x7fff;
  if (std::isinf(nearly) || (x * y == 0 && z == 0)) return round_to(nearly, format);
  const Exact value = static_cast<Exact>(x) * y + z;
  return pack(value, value == 0 ? std::signbit(nearly) : value < 0, format, Round::kNearest);
}

double error_in_ulps(Function which, double x, double got, bool is_float) {
  return ulps(function(which, x), got, is_float);
}
double error_in_ulps_of_pow(double x, double y, double got, bool is_float) {
  return ulps(std::pow(static_cast<long double>(x), static_cast<long double>(y)), got, is_float);
}
double exact(Function which, double x) {
  return static_cast<double>(function(which, x));
}

}  // namespace gpu_check
