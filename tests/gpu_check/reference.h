// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arithmetic as IEEE 754 defines it, by the host's processor under its rounding mode, and numbers
// of 16 bits exactly. The host's compiler alone compiles these.
#include <cstdint>

namespace gpu_check {

enum class Round { kNearest, kZero, kDown, kUp };

float add(float a, float b, Round round);
float multiply(float a, float b, Round round);
float fuse(float a, float b, float d, Round round);
float divide(float a, float b, Round round);
float root(float a, Round round);
double add(double a, double b, Round round);
double multiply(double a, double b, Round round);
double fuse(double a, double b, double d, Round round);
double divide(double a, double b, Round round);
double root(double a, Round round);
float narrow(double a, Round round);
float from_integer(std::int64_t a, Round round);
float from_integer(std::uint64_t a, Round round);
/// To the next integer in that direction, ties to even.
double whole(double a, Round round);

/// Numbers with `mantissa` bits behind the point and `exponent` bits: f16 {10, 5}, bf16 {7, 8}.
struct Format {
  int mantissa, exponent;
};
constexpr Format kHalf{10, 5}, kBfloat{7, 8};
double widen(std::uint16_t bits, Format format);
/// Rounds once; all NaNs become 0x7fff.
std::uint16_t round_to(double value, Format format, Round round = Round::kNearest);
/// a * b + d, rounded once.
std::uint16_t fuse(std::uint16_t a, std::uint16_t b, std::uint16_t d, Format format);

/// To a precision beyond double's, for the error of a result. `which` is a row of kFunctions.
enum class Function {
  kExp,
  kExp2,
  kExp10,
  kExpm1,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kTanh,
  kAsinh,
  kAtanh,
  kErf,
  kCbrt,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kLog
};
/// |got - f(x) rounded to nearest| in units of the last place of double (of float, with is_float)
/// at f(x): as CUDA's tables of errors are defined. 0 where both are the same infinity or NaN.
double error_in_ulps(Function which, double x, double got, bool is_float);
double error_in_ulps_of_pow(double x, double y, double got, bool is_float);
/// f(x) rounded to double.
double exact(Function which, double x);

}  // namespace gpu_check
