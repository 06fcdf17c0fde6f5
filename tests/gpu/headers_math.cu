// SPDX-License-Identifier: Apache-2.0
// The mathematics of the device (share/softgpu/toolkit/libdevice) against the host's in a wider
// type. Prints for each function the greatest error in units in the last place; with an argument
// only what is beyond its bound. Bounds are those that CUDA documents, or wider where a row says
// so.
#include "headers_check.h"

#include <cfloat>
#include <cmath>
#include <limits>
#include <type_traits>

namespace {

Random chance(1);
bool is_quiet = false;

// Distance in units in the last place of `want` as a T; what is no number must be none.
template <class T, class Wide>
double apart(T got, Wide want) {
  const T nearest = static_cast<T>(want);
  if (want != want) return got != got ? 0 : INFINITY;
  if (got == nearest) return std::signbit(got) == std::signbit(nearest) || nearest != 0 ? 0 : 0.5;
  if (got != got) return INFINITY;
  // Beyond the greatest: infinity is one step away from it.
  const T most = std::numeric_limits<T>::max();
  if (std::isinf(got) || std::isinf(nearest))
    return std::fabs(got) >= most / 2 && std::fabs(nearest) >= most / 2 &&
                   (got < 0) == (nearest < 0)
               ? (std::fabs(got) == most || std::fabs(nearest) == most ? 1 : INFINITY)
               : INFINITY;
  int exponent = 0;
  std::frexp(want, &exponent);
  const int least = std::numeric_limits<T>::min_exponent;
  const Wide unit =
      std::ldexp(Wide{1}, (exponent < least ? least : exponent) - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<Wide>(got) - want) / unit);
}

template <class T>
std::vector<T> arguments(double low, double high, std::size_t count) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  using Limits = std::numeric_limits<T>;
  std::vector<T> values{0,
                        1,
                        2,
                        3,
                        10,
                        100,
                        static_cast<T>(0.5),
                        static_cast<T>(1.5),
                        static_cast<T>(2.5),
                        static_cast<T>(1e4),
                        static_cast<T>(10001.5),
                        static_cast<T>(1e9),
                        static_cast<T>(1e17),
                        static_cast<T>(88.72),
                        static_cast<T>(-87.3),
                        static_cast<T>(709.78),
                        static_cast<T>(-103.9),
                        static_cast<T>(3.14159265358979323846),
                        static_cast<T>(1.57079632679489661923),
                        Limits::max(),
                        Limits::min(),
                        Limits::denorm_min(),
                        Limits::infinity(),
                        Limits::quiet_NaN(),
                        Limits::epsilon(),
                        1 + Limits::epsilon(),
                        1 - Limits::epsilon() / 2,
                        static_cast<T>(0.49999997),
                        static_cast<T>(8388609),
                        static_cast<T>(4503599627370497.0)};
  for (std::size_t i = values.size(); i > 0; --i)
    values.push_back(-values[i - 1]);
  while (values.size() < count) {
    const std::uint64_t bits = chance.bits();
    switch (bits % 4) {
      case 0:
        values.push_back(__builtin_bit_cast(T, static_cast<Bits>(chance.bits())));
        break;
      case 1:
        values.push_back(static_cast<T>(chance.between(-4, 4)));
        break;
      default:
        values.push_back(static_cast<T>(chance.between(low, high)));
    }
  }
  return values;
}

template <class Function, class T, class Out>
__global__ void apply(const T* a, const T* b, Out* out, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = Function::device(a[i], b[i]);
}

// Functions of one argument and of two, as types, since a kernel cannot take a function of both
// sides. `wide`: of the host.
#define ONE(name, device_expression, host_expression) \
  struct name##_of {                                  \
    template <class T>                                \
    __device__ static T device(T a, T) {              \
      return device_expression;                       \
    }                                                 \
    template <class Wide>                             \
    static Wide wide(Wide a, Wide) {                  \
      return host_expression;                         \
    }                                                 \
  };
#define TWO(name, device_expression, host_expression) \
  struct name##_of {                                  \
    template <class T>                                \
    __device__ static T device(T a, T b) {            \
      return device_expression;                       \
    }                                                 \
    template <class Wide>                             \
    static Wide wide(Wide a, Wide b) {                \
      return host_expression;                         \
    }                                                 \
  };
#define SAME(name) ONE(name, ::name(a), std::name(a))
SAME(acos)
SAME(acosh)
SAME(asin)
SAME(asinh)
SAME(atan)
SAME(atanh)
SAME(cbrt)
SAME(ceil)
SAME(cos)
SAME(cosh)
SAME(erf)
SAME(erfc)
SAME(exp)
SAME(exp2)
SAME(expm1)
SAME(fabs)
SAME(floor)
SAME(log)
SAME(log10)
SAME(log1p)
SAME(log2)
SAME(logb)
SAME(nearbyint)
SAME(rint)
SAME(round)
SAME(sin)
SAME(sinh)
SAME(sqrt)
SAME(tan)
SAME(tanh)
SAME(tgamma)
SAME(trunc)
ONE(rsqrt, ::rsqrt(a), 1 / std::sqrt(a))
ONE(rcbrt, ::rcbrt(a), 1 / std::cbrt(a))
ONE(exp10, ::exp10(a), std::pow(Wide{10}, a))
constexpr long double kPi = 3.14159265358979323846264338327950288L;
// Exact reduction first: the argument counts half turns.
template <class Wide>
Wide sine_of_turns(Wide a, bool is_cosine) {
  if (std::isinf(a)) return a - a;
  const Wide rest = std::remainder(a, Wide{2});
  if (is_cosine && std::fabs(rest) == Wide{0.5}) return 0;
  if (!is_cosine && (rest == 0 || std::fabs(rest) == 1))
    return a < 0 || std::signbit(a) ? -Wide{0} : Wide{0};
  const Wide turn = static_cast<Wide>(kPi);
  if (is_cosine)
    return std::fabs(rest) < 0.25 ? std::cos(rest * turn)
                                  : std::sin((Wide{0.5} - std::fabs(rest)) * turn);
  if (std::fabs(rest) <= 0.75) return std::sin(rest * turn);
  return std::sin((rest < 0 ? -1 - rest : 1 - rest) * turn);
}
ONE(sinpi, ::sinpi(a), sine_of_turns(a, false))
ONE(cospi, ::cospi(a), sine_of_turns(a, true))
ONE(normcdf, ::normcdf(a), std::erfc(-a / std::sqrt(Wide{2})) / 2)
TWO(atan2, ::atan2(a, b), std::atan2(a, b))
TWO(fdim, ::fdim(a, b), std::fdim(a, b))
TWO(fmax, ::fmax(a, b), std::fmax(a, b))
TWO(fmin, ::fmin(a, b), std::fmin(a, b))
TWO(fmod, ::fmod(a, b), std::fmod(a, b))
TWO(hypot, ::hypot(a, b), std::hypot(a, b))
TWO(pow, ::pow(a, b), std::pow(a, b))
TWO(remainder, ::remainder(a, b), std::remainder(a, b))
TWO(copysign, ::copysign(a, b), std::copysign(a, b))
TWO(divide, a / b, a / b)
// Functions of single precision alone: with PTX's approximations.
struct fast_exp_of {
  __device__ static float device(float a, float) { return __expf(a); }
  static double wide(double a, double) { return std::exp(a); }
};
struct fast_log_of {
  __device__ static float device(float a, float) { return __logf(a); }
  static double wide(double a, double) { return std::log(a); }
};
struct fast_sin_of {
  __device__ static float device(float a, float) { return __sinf(a); }
  static double wide(double a, double) { return std::sin(a); }
};
struct fast_divide_of {
  __device__ static float device(float a, float b) { return __fdividef(a, b); }
  static double wide(double a, double b) { return a / b; }
};

template <class Function, class T>
void check(const char* name, double bound, double low, double high) {
  using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;
  const std::size_t count = 6144;
  const std::vector<T> a = arguments<T>(low, high, count);
  std::vector<T> b = arguments<T>(-3, 3, count);
  for (std::size_t i = 0; i < 64; ++i)
    std::swap(b[i], b[chance.below(count)]);
  Array<T> device_a(a), device_b(b), out(count);
  apply<Function, T, T><<<48, 128>>>(device_a, device_b, out, static_cast<unsigned>(count));
  const std::vector<T> got = out.host();
  double most = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double error =
        apart(got[i], Function::wide(static_cast<Wide>(a[i]), static_cast<Wide>(b[i])));
    // Bounds of fast functions hold in their range alone.
    if (high == 7 && !(std::fabs(a[i]) < high && std::fabs(b[i]) < 1e30 && std::fabs(b[i]) > 1e-30))
      continue;
    if (error <= most) continue;
    most = error;
    where = i;
  }
  const bool is_right = most <= bound;
  if (!is_right) ++wrong;
  if (is_quiet && is_right) return;
  std::printf("%s%-10s %-6s error %6.3g ulp, at most %g: (%.9g, %.9g) gives %.9g, not %.9Lg\n",
              is_right ? "" : "WRONG ", name, sizeof(T) == 4 ? "float" : "double", most, bound,
              static_cast<double>(a[where]), static_cast<double>(b[where]),
              static_cast<double>(got[where]),
              static_cast<long double>(
                  Function::wide(static_cast<Wide>(a[where]), static_cast<Wide>(b[where]))));
}
template <class Function>
void both(const char* name, double bound_float, double bound_double, double low, double high) {
  check<Function, float>(name, bound_float, low, high);
  check<Function, double>(name, bound_double, low, high);
}
#define BOTH(name, bound_float, bound_double, low, high) \
  both<name##_of>(#name, bound_float, bound_double, low, high)

void elementary() {
  BOTH(exp, 2, 1, -110, 110);
  BOTH(exp2, 2, 1, -150, 150);
  BOTH(exp10, 2, 1, -45, 45);
  BOTH(expm1, 1, 1, -20, 20);
  BOTH(log, 2, 2, 0, 10);
  BOTH(log2, 1, 1, 0, 10);
  BOTH(log10, 2, 1, 0, 10);
  BOTH(log1p, 1, 1, -1, 3);
  BOTH(pow, 4, 2, 0, 20);
  BOTH(sqrt, 0.5, 0.5, 0, 1e6);
  BOTH(rsqrt, 2, 1, 0, 1e6);
  BOTH(cbrt, 1, 1, -100, 100);
  BOTH(rcbrt, 1, 2, -100, 100);
  BOTH(hypot, 3, 2, -10, 10);
  BOTH(divide, 0.5, 0.5, -10, 10);
}
void trigonometric() {
  BOTH(sin, 2, 2, -1e5, 1e5);
  BOTH(cos, 2, 2, -1e5, 1e5);
  BOTH(tan, 4, 2, -100, 100);
  BOTH(sinpi, 2, 2, -10, 10);
  BOTH(cospi, 2, 2, -10, 10);
  BOTH(asin, 2, 2, -1, 1);
  BOTH(acos, 2, 2, -1, 1);
  BOTH(atan, 2, 2, -10, 10);
  BOTH(atan2, 3, 2, -10, 10);
  BOTH(sinh, 3, 2, -90, 90);
  BOTH(cosh, 2, 2, -90, 90);
  BOTH(tanh, 2, 2, -5, 5);
  BOTH(asinh, 3, 3, -100, 100);
  BOTH(acosh, 4, 3, 1, 100);
  BOTH(atanh, 3, 2, -1, 1);
}
void others() {
  BOTH(erf, 2, 2, -4, 4);
  BOTH(erfc, 4, 5, -4, 10);
  BOTH(tgamma, 5, 500, -5, 35);  // between poles, far below 0
  BOTH(normcdf, 5, 5, -8, 4);
  BOTH(ceil, 0, 0, -100, 100);
  BOTH(floor, 0, 0, -100, 100);
  BOTH(trunc, 0, 0, -100, 100);
  BOTH(round, 0, 0, -100, 100);
  BOTH(rint, 0, 0, -100, 100);
  BOTH(nearbyint, 0, 0, -100, 100);
  BOTH(fabs, 0, 0, -100, 100);
  BOTH(logb, 0, 0, -100, 100);
  BOTH(fdim, 0.5, 0.5, -10, 10);
  BOTH(fmax, 0.5, 0.5, -10, 10);
  BOTH(fmin, 0.5, 0.5, -10, 10);
  BOTH(fmod, 0, 0, -10, 10);
  BOTH(remainder, 0, 0, -10, 10);
  BOTH(copysign, 0, 0, -10, 10);
  check<fast_exp_of, float>("__expf", 12, -7, 7);
  check<fast_divide_of, float>("__fdividef", 2, -7, 7);
}

// --- whole numbers and parts ---------------------------------------------------------------------

__global__ void parts(const double* in, double* out, long long* whole, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const double a = in[i];
  const float f = static_cast<float>(a);
  int exponent = 0, float_exponent = 0;
  double integral = 0;
  out[8 * i] = frexp(a, &exponent);
  out[8 * i + 1] = modf(a, &integral);
  out[8 * i + 2] = integral;
  out[8 * i + 3] = ldexp(a, static_cast<int>(i % 300) - 150);
  out[8 * i + 4] = frexpf(f, &float_exponent);
  out[8 * i + 5] = nextafter(a, 1.0);
  double sine, cosine;
  sincos(a, &sine, &cosine);
  out[8 * i + 6] = sine == sin(a) && cosine == cos(a) ? 1 : a - a == 0 ? 0 : 1;
  float float_sine, float_cosine;
  sincosf(f, &float_sine, &float_cosine);
  out[8 * i + 7] = float_sine == sinf(f) && float_cosine == cosf(f) ? 1 : f - f == 0 ? 0 : 1;
  whole[8 * i] = exponent;
  whole[8 * i + 1] = float_exponent;
  whole[8 * i + 2] = llrint(a);
  whole[8 * i + 3] = llround(a);
  whole[8 * i + 4] = ilogb(a);
  whole[8 * i + 5] =
      (isnan(a) ? 1 : 0) | (isinf(a) ? 2 : 0) | (isfinite(a) ? 4 : 0) | (signbit(a) ? 8 : 0);
  whole[8 * i + 6] = __float2int_rd(f);
  whole[8 * i + 7] = __float2int_rn(f);
}
bool same(double a, double b) {
  return a == b ? std::signbit(a) == std::signbit(b) : a != a && b != b;
}
void check_parts() {
  const std::vector<double> in = arguments<double>(-1e6, 1e6, 2048);
  Array<double> device_in(in), out(8 * in.size());
  Array<long long> whole_out(8 * in.size());
  parts<<<16, 128>>>(device_in, out, whole_out, static_cast<unsigned>(in.size()));
  const std::vector<double> got = out.host();
  const std::vector<long long> whole = whole_out.host();
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double a = in[i], *const d = &got[8 * i];
    const long long* const w = &whole[8 * i];
    const float f = static_cast<float>(a);
    int exponent = 0, float_exponent = 0;
    double integral = 0;
    const double fraction = std::frexp(a, &exponent), rest = std::modf(a, &integral);
    const float float_fraction = std::frexp(f, &float_exponent);
    const bool is_finite = std::isfinite(a), is_finite_float = std::isfinite(f);
    bool is_right = same(d[0], fraction) && same(d[1], rest) && same(d[2], integral) &&
                    same(d[3], std::ldexp(a, static_cast<int>(i % 300) - 150)) &&
                    same(d[4], float_fraction) && (d[5] == std::nextafter(a, 1.0) || a != a) &&
                    d[6] == 1 && d[7] == 1;
    if (is_finite) is_right = is_right && w[0] == exponent && (a == 0 || w[4] == std::ilogb(a));
    if (is_finite_float) is_right = is_right && w[1] == float_exponent;
    if (std::fabs(a) < 9e18)
      is_right = is_right && w[2] == std::llrint(a) && w[3] == std::llround(a);
    if (std::fabs(f) < 2e9F)
      is_right =
          is_right && w[6] == static_cast<long long>(std::floor(f)) && w[7] == std::llrint(f);
    is_right = is_right && w[5] == ((std::isnan(a) ? 1 : 0) | (std::isinf(a) ? 2 : 0) |
                                    (is_finite ? 4 : 0) | (std::signbit(a) ? 8 : 0));
    if (is_right) continue;
    std::printf(
        "parts of %a: %a (%lld), %a + %a, %a, %a (%lld), %a, %g %g; %lld %lld %lld %llx %lld "
        "%lld\n",
        a, d[0], w[0], d[2], d[1], d[3], d[4], w[1], d[5], d[6], d[7], w[2], w[3], w[4],
        static_cast<unsigned long long>(w[5]), w[6], w[7]);
    if (++wrong > 5) return;
  }
}

// min and max keep the type of their arguments, also where an overload for int would take them.
template <class T>
__global__ void least_and_most(const T* in, T* out) {
  out[0] = min(in[0], in[1]);
  out[1] = max(in[0], in[1]);
}
template <class T>
void check_min_max(const char* name, T low, T high) {
  const Array<T> in(std::vector<T>{high, low});
  Array<T> out(2);
  least_and_most<<<1, 1>>>(static_cast<const T*>(in), static_cast<T*>(out));
  const std::vector<T> got = out.host();
  if (got[0] == low && got[1] == high) return;
  std::printf("min or max of %s\n", name);
  ++wrong;
}
void check_all_min_max() {
  check_min_max<float>("float", -INFINITY, 0.25F);
  check_min_max<double>("double", -1e300, 0.25);
  check_min_max<int>("int", -7, 7);
  check_min_max<unsigned>("unsigned", 7U, 0x90000000U);
  check_min_max<long>("long", -(1L << 40), 1L << 41);
  check_min_max<unsigned long>("unsigned long", 1, ~0UL);
  check_min_max<long long>("long long", -(1LL << 40), 1LL << 41);
  check_min_max<unsigned long long>("unsigned long long", 1, ~0ULL);
}

}  // namespace

int main(int count, char**) {
  is_quiet = count > 1;
  check_all_min_max();
  elementary();
  trigonometric();
  others();
  check_parts();
  return report("device mathematics");
}
