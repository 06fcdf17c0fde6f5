// SPDX-License-Identifier: Apache-2.0
// Half precision, bfloat16 and numbers of 8 bits: the functions of cuda_fp16.h, cuda_bf16.h and
// cuda_fp8.h, on the device and on the host, against tables of all their values.
#include "headers_check.h"

#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

Random chance(1);

// A format with 1 sign bit by its table of numbers >= 0; rounds a double to the nearest, ties to
// the even one. The last finite number is numbers.size() - 1 as bits.
class Format {
 public:
  Format(int exponent_bits, int fraction_bits, unsigned greatest)
      : sign_(1U << (exponent_bits + fraction_bits)) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (unsigned bits = 0; bits <= greatest + 1; ++bits) {
      const int exponent = static_cast<int>(bits >> fraction_bits);
      const unsigned fraction = bits & ((1U << fraction_bits) - 1);
      numbers_.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                       : std::ldexp(fraction + (1U << fraction_bits),
                                                    exponent - bias - fraction_bits));
    }
  }
  unsigned sign() const { return sign_; }
  // `beyond`: what lies past the greatest by half a step or more.
  unsigned round(double value, unsigned beyond) const {
    const unsigned sign = std::signbit(value) ? sign_ : 0;
    const double size = std::fabs(value);
    auto after = std::upper_bound(numbers_.begin(), numbers_.end(), size);
    if (after == numbers_.end()) return sign | beyond;
    const unsigned high = static_cast<unsigned>(after - numbers_.begin()), low = high - 1;
    const double below = size - numbers_[low], above = numbers_[high] - size;
    const unsigned bits = below < above || (below == above && low % 2 == 0) ? low : high;
    return sign | (bits == numbers_.size() - 1 ? beyond : bits);
  }
  double value(unsigned bits) const {
    const unsigned size = bits & (sign_ - 1);
    const double number =
        size < numbers_.size() - 1 ? numbers_[size] : std::numeric_limits<double>::quiet_NaN();
    return (bits & sign_) != 0 ? -number : number;
  }

 private:
  unsigned sign_;
  std::vector<double> numbers_;  // and what would come next
};

struct Half {
  using One = __half;
  using Two = __half2;
  static constexpr unsigned kInfinity = 0x7c00;
  static constexpr const char* kName = "half";
  static const Format& format() {
    static const Format format(5, 10, 0x7bff);
    return format;
  }
};
struct Bfloat {
  using One = __nv_bfloat16;
  using Two = __nv_bfloat162;
  static constexpr unsigned kInfinity = 0x7f80;
  static constexpr const char* kName = "bfloat16";
  static const Format& format() {
    static const Format format(8, 7, 0x7f7f);
    return format;
  }
};
template <class Kind>
double wide(unsigned bits) {
  if ((bits & 0x7fffU) == Kind::kInfinity) return (bits & 0x8000U) != 0 ? -INFINITY : INFINITY;
  return Kind::format().value(bits);
}
// Bits of the type; 0x7fff stands for all that is no number.
template <class Kind>
unsigned narrow(double value) {
  return value != value ? 0x7fffU : Kind::format().round(value, Kind::kInfinity);
}
template <class One>
__host__ __device__ unsigned bits_of(One value) {
  const unsigned bits = __builtin_bit_cast(unsigned short, value);
  return value != value ? 0x7fffU : bits;
}
template <class Two>
__host__ __device__ unsigned bits_of_pair(Two value) {
  return bits_of(value.x) | bits_of(value.y) << 16;
}
template <class One>
__host__ __device__ One of_bits(unsigned bits) {
  return __builtin_bit_cast(One, static_cast<unsigned short>(bits));
}

constexpr int kResults = 32;
// The same on both sides.
template <class One, class Two>
__host__ __device__ void arithmetic(One a, One b, One c, unsigned* out) {
  const Two p(a, b), q(b, c), r(c, a);
  out[0] = bits_of(__hadd(a, b));
  out[1] = bits_of(__hsub(a, b));
  out[2] = bits_of(__hmul(a, b));
  out[3] = bits_of(__hdiv(a, b));
  out[4] = bits_of(__hfma(a, b, c));
  out[5] = bits_of(__hadd_sat(a, b));
  out[6] = bits_of(__hfma_sat(a, b, c));
  out[7] = bits_of(__hneg(a)) | bits_of(__habs(a)) << 16;
  out[8] = bits_of(__hmax(a, b)) | bits_of(__hmin(a, b)) << 16;
  out[9] = bits_of(__hmax_nan(a, b)) | bits_of(__hmin_nan(a, b)) << 16;
  out[10] = (__heq(a, b) ? 1U : 0U) | (__hne(a, b) ? 2U : 0U) | (__hlt(a, b) ? 4U : 0U) |
            (__hle(a, b) ? 8U : 0U) | (__hgt(a, b) ? 16U : 0U) | (__hge(a, b) ? 32U : 0U) |
            (__hequ(a, b) ? 64U : 0U) | (__hneu(a, b) ? 128U : 0U) | (__hltu(a, b) ? 256U : 0U) |
            (__hleu(a, b) ? 512U : 0U) | (__hgtu(a, b) ? 1024U : 0U) | (__hgeu(a, b) ? 2048U : 0U);
  out[11] = (a == b ? 1U : 0U) | (a != b ? 2U : 0U) | (a < b ? 4U : 0U) | (a <= b ? 8U : 0U) |
            (a > b ? 16U : 0U) | (a >= b ? 32U : 0U);
  out[12] = (__hisnan(a) ? 4U : 0U) | (static_cast<unsigned>(__hisinf(a)) & 3U);
  out[13] = bits_of_pair(__hadd2(p, q));
  out[14] = bits_of_pair(__hmul2(p, q));
  out[15] = bits_of_pair(__hfma2(p, q, r));
  out[16] = bits_of_pair(__hmax2(p, q));
  out[17] = bits_of_pair(__h2div(p, q));
  out[18] = bits_of_pair(__hsub2(p, q));
  out[19] = __hlt2_mask(p, q) ^ (__hbge2(p, q) ? 1U : 0U) ^ (__hbneu2(p, q) ? 2U : 0U);
  out[20] = bits_of_pair(__hgtu2(p, q));
  out[21] = bits_of_pair(-p) ^ bits_of_pair(__habs2(q));
  One sum = a;
  sum += b;
  sum *= c;
  out[22] = bits_of(sum) | bits_of(-a + b) << 16;
  out[23] = bits_of(__hfma_relu(a, b, c));
}
template <class Kind>
double fused(double a, double b, double c, bool is_by_float) {
  if (is_by_float)
    return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
  // The sum, cut off and marked where double does not hold it.
  const double product = a * b, sum = product + c;
  if (!(std::fabs(sum) <= std::numeric_limits<double>::max())) return sum;
  const double part = sum - product, error = (product - (sum - part)) + (c - part);
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  return std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
}
template <class Kind>
void wanted(unsigned a_bits, unsigned b_bits, unsigned c_bits, bool is_fma_by_float,
            unsigned* out) {
  const double a = wide<Kind>(a_bits), b = wide<Kind>(b_bits), c = wide<Kind>(c_bits);
  const auto n = [](double value) { return narrow<Kind>(value); };
  const auto fma = [&](double x, double y, double z) {
    return n(fused<Kind>(x, y, z, is_fma_by_float));
  };
  const auto sat = [&](unsigned bits) {
    const double value = wide<Kind>(bits);
    return n(value > 0 ? std::min(value, 1.0) : 0.0);
  };
  const auto most = [&](double x, double y, bool is_max, bool with_nan) {
    if (x != x || y != y) return with_nan ? 0x7fffU : n(x != x ? y : x);
    const bool is_x_less = x < y || (x == y && std::signbit(x));
    return n(is_x_less != is_max ? x : y);
  };
  const auto pair = [](unsigned low, unsigned high) { return low | high << 16; };
  out[0] = n(a + b);
  out[1] = n(a - b);
  out[2] = n(a * b);
  out[3] = n(a / b);
  out[4] = fma(a, b, c);
  out[5] = sat(out[0]);
  out[6] = sat(out[4]);
  out[7] = pair(n(-a), n(std::fabs(a)));
  out[8] = pair(most(a, b, true, false), most(a, b, false, false));
  out[9] = pair(most(a, b, true, true), most(a, b, false, true));
  const bool is_unordered = a != a || b != b;
  const unsigned ordered = (a == b ? 1U : 0U) | (a < b || a > b ? 2U : 0U) | (a < b ? 4U : 0U) |
                           (a <= b ? 8U : 0U) | (a > b ? 16U : 0U) | (a >= b ? 32U : 0U);
  out[10] = ordered | (is_unordered ? 63U : ordered) << 6;
  out[11] = ordered | (a != b ? 2U : 0U);
  out[12] = (a != a ? 4U : 0U) | (std::isinf(a) ? (a > 0 ? 1U : 3U) : 0U);
  out[13] = pair(n(a + b), n(b + c));
  out[14] = pair(n(a * b), n(b * c));
  out[15] = pair(fma(a, b, c), fma(b, c, a));
  out[16] = pair(most(a, b, true, false), most(b, c, true, false));
  out[17] = pair(n(a / b), n(b / c));
  out[18] = pair(n(a - b), n(b - c));
  out[19] = (a < b ? 0xffffU : 0U) | (b < c ? 0xffff0000U : 0U);
  out[19] ^= (a >= b && b >= c ? 1U : 0U) ^ (!(a == b) && !(b == c) ? 2U : 0U);
  out[20] = pair(n(a <= b ? 0 : 1), n(b <= c ? 0 : 1));
  out[21] = pair(n(-a), n(-b)) ^ pair(n(std::fabs(b)), n(std::fabs(c)));
  out[22] = pair(n(wide<Kind>(out[0]) * c), n(b - a));
  out[23] = wide<Kind>(out[4]) < 0 ? 0U : out[4];
}
template <class Kind>
__global__ void arithmetic_kernel(const unsigned* in, unsigned* out) {
  using One = typename Kind::One;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  arithmetic<One, typename Kind::Two>(of_bits<One>(in[3 * i]), of_bits<One>(in[3 * i + 1]),
                                      of_bits<One>(in[3 * i + 2]), out + kResults * i);
}

// Compares rows of results and tells the first difference of each.
template <class Kind>
void compare(const char* side, const unsigned* in, const unsigned* got, const unsigned* want,
             bool (&told)[kResults]) {
  for (int k = 0; k < kResults; ++k) {
    if (got[k] == want[k] || told[k]) continue;
    told[k] = true;
    ++wrong;
    std::printf("%s on the %s: result %d of %04x %04x %04x: %08x, not %08x\n", Kind::kName, side, k,
                in[0], in[1], in[2], got[k], want[k]);
  }
}
template <class Kind>
void check_arithmetic(bool is_device_fma_by_float) {
  using One = typename Kind::One;
  const unsigned edges[] = {0,      0x8000, 1,      0x8001, 0x3c00, 0xbc00, 0x3f80,
                            0xbf80, 0x7bff, 0x7c00, 0xfc00, 0x7f7f, 0x7f80, 0xff80,
                            0x7fff, 0x0400, 0x0080, 0x3800, 0x5678, 0x0203};
  std::vector<unsigned> in;
  for (const unsigned a : edges)
    for (const unsigned b : edges)
      for (const unsigned c : {a, b, 0x8000U, edges[chance.below(20)]})
        in.insert(in.end(), {a, b, c});
  while (in.size() < 3 * 64 * 128) {
    // Near each other as well, where sums cancel.
    const unsigned a = static_cast<unsigned>(chance.bits()) & 0xffffU;
    const unsigned b =
        chance.below(2) == 0 ? static_cast<unsigned>(chance.bits()) & 0xffffU : a ^ 0x8003U;
    in.insert(in.end(), {a, b, static_cast<unsigned>(chance.bits()) & 0xffffU});
  }
  const std::size_t n = in.size() / 3;
  Array<unsigned> device_in(in), out(n * kResults);
  arithmetic_kernel<Kind><<<static_cast<unsigned>(n / 64), 64>>>(device_in, out);
  const std::vector<unsigned> got = out.host();
  bool told[2][kResults] = {};
  for (std::size_t i = 0; i < n; ++i) {
    unsigned on_host[kResults] = {}, want[kResults] = {};
    const unsigned* const row = &in[3 * i];
    wanted<Kind>(row[0], row[1], row[2], is_device_fma_by_float, want);
    compare<Kind>("device", row, &got[kResults * i], want, told[0]);
    arithmetic<One, typename Kind::Two>(of_bits<One>(row[0]), of_bits<One>(row[1]),
                                        of_bits<One>(row[2]), on_host);
    wanted<Kind>(row[0], row[1], row[2], sizeof(One) == 2 && Kind::kInfinity == 0x7f80, want);
    compare<Kind>("host", row, on_host, want, told[1]);
  }
}

// --- functions of one number ---------------------------------------------------------------------

constexpr int kFunctions = 16;
const char* const kFunctionNames[kFunctions] = {"exp",  "exp2",  "exp10", "log", "log2", "log10",
                                                "sqrt", "rsqrt", "rcp",   "sin", "cos",  "tanh",
                                                "ceil", "floor", "trunc", "rint"};
template <class Kind>
__global__ void functions_kernel(unsigned* out) {
  using One = typename Kind::One;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const One a = of_bits<One>(i);
  const One values[kFunctions] = {hexp(a),  hexp2(a),  hexp10(a), hlog(a), hlog2(a), hlog10(a),
                                  hsqrt(a), hrsqrt(a), hrcp(a),   hsin(a), hcos(a),  htanh(a),
                                  hceil(a), hfloor(a), htrunc(a), hrint(a)};
#pragma unroll
  for (int k = 0; k < kFunctions; ++k)
    out[kFunctions * i + k] = bits_of(values[k]);
}
double function_of(int k, double a) {
  switch (k) {
    case 0:
      return std::exp(a);
    case 1:
      return std::exp2(a);
    case 2:
      return std::pow(10.0, a);
    case 3:
      return std::log(a);
    case 4:
      return std::log2(a);
    case 5:
      return std::log10(a);
    case 6:
      return std::sqrt(a);
    case 7:
      return 1 / std::sqrt(a);
    case 8:
      return 1 / a;
    case 9:
      return std::sin(a);
    case 10:
      return std::cos(a);
    case 11:
      return std::tanh(a);
    case 12:
      return std::ceil(a);
    case 13:
      return std::floor(a);
    case 14:
      return std::trunc(a);
    default:
      return std::nearbyint(a);
  }
}
// Within one step of the right one; whole numbers exactly.
template <class Kind>
void check_functions() {
  Array<unsigned> out(65536 * kFunctions);
  functions_kernel<Kind><<<512, 128>>>(out);
  const std::vector<unsigned> got = out.host();
  bool told[kFunctions] = {};
  for (unsigned i = 0; i < 65536; ++i) {
    for (int k = 0; k < kFunctions; ++k) {
      const unsigned value =
          got[static_cast<std::size_t>(kFunctions * i + static_cast<unsigned>(k))];
      const unsigned want = narrow<Kind>(function_of(k, wide<Kind>(i)));
      const unsigned apart = value > want ? value - want : want - value;
      const bool is_right = want == 0x7fff || k >= 12 ? value == want : apart <= 1;
      if (is_right || told[k]) continue;
      told[k] = true;
      ++wrong;
      std::printf("%s: h%s(%g): %04x, not %04x\n", Kind::kName, kFunctionNames[k], wide<Kind>(i),
                  value, want);
    }
  }
}

// --- conversions ---------------------------------------------------------------------------------

template <class Number>
bool is_same(Number a, Number b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}
template <class Integer>
Integer clamped(double value) {
  if (value != value) return 0;
  // As numbers of double, of which the greatest of 64 bits is one too many.
  const double least = static_cast<double>(std::numeric_limits<Integer>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  return value < least     ? std::numeric_limits<Integer>::min()
         : value >= beyond ? std::numeric_limits<Integer>::max()
                           : static_cast<Integer>(value);
}
#define CHECK_INTEGER(type, name, prefix, one)                                               \
  if (!is_same<type>(__##prefix##2##name##_rn(one), clamped<type>(std::nearbyint(value))) || \
      !is_same<type>(__##prefix##2##name##_rz(one), clamped<type>(std::trunc(value))) ||     \
      !is_same<type>(__##prefix##2##name##_rd(one), clamped<type>(std::floor(value))) ||     \
      !is_same<type>(__##prefix##2##name##_ru(one), clamped<type>(std::ceil(value)))) {      \
    std::printf(#prefix " to " #type ": %g\n", value);                                       \
    ++wrong;                                                                                 \
    return;                                                                                  \
  }
#define CHECK_INTEGERS(function, kind, prefix)            \
  void function() {                                       \
    for (unsigned i = 0; i < 65536; ++i) {                \
      const kind::One one = of_bits<kind::One>(i);        \
      const double value = wide<kind>(i);                 \
      CHECK_INTEGER(int, int, prefix, one)                \
      CHECK_INTEGER(unsigned, uint, prefix, one)          \
      CHECK_INTEGER(short, short, prefix, one)            \
      CHECK_INTEGER(unsigned short, ushort, prefix, one)  \
      CHECK_INTEGER(long long, ll, prefix, one)           \
      CHECK_INTEGER(unsigned long long, ull, prefix, one) \
    }                                                     \
  }
CHECK_INTEGERS(check_half_integers, Half, half)
CHECK_INTEGERS(check_bfloat_integers, Bfloat, bfloat16)

template <class Kind>
struct Conversions {
  using One = typename Kind::One;
  // Result of each constructor for the bits of `seed`, and the expected one.
  __host__ __device__ static void convert(double number, std::uint64_t seed, unsigned* out) {
    out[0] = bits_of(One(number));
    out[1] = bits_of(One(static_cast<float>(number)));
    out[2] = bits_of(One(static_cast<int>(seed)));
    out[3] = bits_of(One(static_cast<unsigned>(seed)));
    out[4] = bits_of(One(static_cast<long long>(seed)));
    out[5] = bits_of(One(static_cast<unsigned long long>(seed)));
    out[6] = bits_of(One(static_cast<short>(seed)));
    out[7] = bits_of(One(static_cast<unsigned short>(seed)));
  }
  static void want(double number, std::uint64_t seed, unsigned* out) {
    const auto n = [](double value) { return narrow<Kind>(value); };
    // 64 bits, cut off and marked: the table rounds on what double holds.
    const auto cut = [](std::uint64_t value) {
      return value >> 53 == 0
                 ? static_cast<double>(value)
                 : static_cast<double>(value >> 12 << 1 | ((value & 4095) != 0 ? 1 : 0)) * 2048;
    };
    const auto as_signed = static_cast<long long>(seed);
    out[0] = n(number);
    out[1] = n(static_cast<float>(number));
    out[2] = n(static_cast<int>(seed));
    out[3] = n(static_cast<unsigned>(seed));
    out[4] = n(as_signed < 0 ? -cut(0 - seed) : cut(seed));
    out[5] = n(cut(seed));
    out[6] = n(static_cast<short>(seed));
    out[7] = n(static_cast<unsigned short>(seed));
  }
};
template <class Kind>
__global__ void convert_kernel(const double* numbers, const std::uint64_t* seeds, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  Conversions<Kind>::convert(numbers[i], seeds[i], out + 8 * i);
}
template <class Kind>
void check_conversions() {
  std::vector<double> numbers;
  std::vector<std::uint64_t> seeds;
  for (std::size_t i = 0; i < 8192; ++i) {
    const unsigned bits = static_cast<unsigned>(chance.bits());
    // Between two neighbours: the middle, a little more, a little less, anywhere.
    const double low = wide<Kind>(bits & 0x7fffU), high = wide<Kind>((bits & 0x7fffU) + 1);
    const double middle = (low + high) / 2;
    const double choices[] = {middle, std::nextafter(middle, 1e300), std::nextafter(middle, 0),
                              low * 1.3};
    numbers.push_back((bits >> 31 != 0 ? -1 : 1) * choices[i % 4]);
    std::uint64_t seed = chance.bits() >> chance.below(64);
    if (i % 2 == 0)
      seed = (1ULL << chance.below(64)) * (256 + chance.below(2) * 8 + 4) + chance.below(3) - 1;
    seeds.push_back(seed);
  }
  Array<double> device_numbers(numbers);
  Array<std::uint64_t> device_seeds(seeds);
  Array<unsigned> out(8 * numbers.size());
  convert_kernel<Kind><<<128, 64>>>(device_numbers, device_seeds, out);
  const std::vector<unsigned> got = out.host();
  bool told[16] = {};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    unsigned on_host[8], want[8];
    Conversions<Kind>::convert(numbers[i], seeds[i], on_host);
    Conversions<Kind>::want(numbers[i], seeds[i], want);
    for (std::size_t k = 0; k < 8; ++k) {
      for (const bool is_host : {false, true}) {
        const unsigned value = is_host ? on_host[k] : got[8 * i + k];
        if (value == want[k] || told[2 * k + is_host]) continue;
        told[2 * k + is_host] = true;
        ++wrong;
        std::printf("%s, conversion %zu on the %s of %a, %llx: %04x, not %04x\n", Kind::kName, k,
                    is_host ? "host" : "device", numbers[i],
                    static_cast<unsigned long long>(seeds[i]), value, want[k]);
      }
    }
  }
}
template <class Kind>
struct Directed;
template <>
struct Directed<Half> {
  static __half down(float value) { return __float2half_rd(value); }
  static __half up(float value) { return __float2half_ru(value); }
  static __half zero(float value) { return __float2half_rz(value); }
};
template <>
struct Directed<Bfloat> {
  static __nv_bfloat16 down(float value) { return __float2bfloat16_rd(value); }
  static __nv_bfloat16 up(float value) { return __float2bfloat16_ru(value); }
  static __nv_bfloat16 zero(float value) { return __float2bfloat16_rz(value); }
};
template <class Kind>
void check_directed() {
  for (int i = 0; i < 20000; ++i) {
    const float value =
        __builtin_bit_cast(float, static_cast<unsigned>(chance.bits()) % 0x07000000U + 0x36000000U +
                                      (chance.below(2) == 0 ? 0x80000000U : 0));
    const double wide_value = value, down = wide<Kind>(bits_of(Directed<Kind>::down(value))),
                 up = wide<Kind>(bits_of(Directed<Kind>::up(value))),
                 zero = wide<Kind>(bits_of(Directed<Kind>::zero(value)));
    const unsigned low = narrow<Kind>(down), high = narrow<Kind>(up);
    const bool is_right =
        down <= wide_value && up >= wide_value && zero == (value > 0 ? down : up) &&
        (down == up ? down == wide_value
                    : low + (value > 0 ? 1U : -1U) == high || down == 0 || up == 0);
    if (is_right) continue;
    std::printf("directed rounding of %a to %s: %a %a %a\n", static_cast<double>(value),
                Kind::kName, down, up, zero);
    ++wrong;
    return;
  }
}

// Operators of one and of pairs, as bits of a word; the host says what the device has to.
template <class Kind>
__host__ __device__ unsigned operators(typename Kind::One a, typename Kind::One b) {
  using Two = typename Kind::Two;
  const Two equal(a, a), mixed(a, b), other(b, b);
  unsigned seen = 0;
  const auto add = [&seen](bool is_true) { seen = seen << 1 | (is_true ? 1U : 0U); };
  add(equal == Two(a, a)), add(equal == mixed), add(mixed != other), add(equal != other);
  add(equal < other), add(mixed < other), add(equal <= other), add(other > equal);
  add(other > mixed), add(other >= mixed);
  typename Kind::One counted = a;
  add(counted++ == a), add(counted == a + typename Kind::One(1.0F));
  add(--counted == a), add(+a == a);
  Two both = mixed;
  add((++both).x == a + typename Kind::One(1.0F)), add((both--).y == b + typename Kind::One(1.0F));
  return seen << 16 | (bits_of(__hcmadd(mixed, Two(b, a), equal).x) ^
                       bits_of(__hcmadd(mixed, Two(b, a), equal).y) << 3 & 0xffffU);
}
template <class Kind>
__global__ void operators_kernel(typename Kind::One a, typename Kind::One b, unsigned* out) {
  *out = operators<Kind>(a, b);
}
template <class Kind>
void check_operators() {
  using One = typename Kind::One;
  Array<unsigned> out(1);
  operators_kernel<Kind><<<1, 1>>>(One(2.0F), One(3.0F), out);
  const unsigned got = out.host()[0];
  EXPECT(got == operators<Kind>(One(2.0F), One(3.0F)));
  // 2 == 2 twice; not all equal; not all different; all different; 2 < 3 of both, of one; and so on
  EXPECT(got >> 16 == 0b1001'1011'0111'1111);
  // (2 + 3i) (3 + 2i) + (2 + 2i) = 2 + 15i
  const typename Kind::Two product =
      __hcmadd(typename Kind::Two(One(2.0F), One(3.0F)), typename Kind::Two(One(3.0F), One(2.0F)),
               typename Kind::Two(One(2.0F), One(2.0F)));
  EXPECT(bits_of(product.x) == narrow<Kind>(2) && bits_of(product.y) == narrow<Kind>(15));
}
void check_constants() {
  EXPECT(bits_of(CUDART_INF_FP16) == Half::kInfinity &&
         bits_of(CUDART_INF_BF16) == Bfloat::kInfinity);
  EXPECT(__hisnan(CUDART_NAN_FP16) && __hisnan(CUDART_NAN_BF16));
  EXPECT(bits_of(CUDART_ONE_FP16) == narrow<Half>(1) &&
         bits_of(CUDART_ONE_BF16) == narrow<Bfloat>(1));
  EXPECT(wide<Half>(bits_of(CUDART_MAX_NORMAL_FP16)) == 65504);
  EXPECT(wide<Bfloat>(bits_of(CUDART_MAX_NORMAL_BF16)) == 0x1.fep127);
  EXPECT(wide<Half>(bits_of(CUDART_MIN_DENORM_FP16)) == 0x1p-24);
  EXPECT(wide<Bfloat>(bits_of(CUDART_MIN_DENORM_BF16)) == 0x1p-133);
}

// --- pairs, lanes, atomics -----------------------------------------------------------------------

template <class Kind>
__global__ void exchange_kernel(typename Kind::One* sums, unsigned* out) {
  using One = typename Kind::One;
  using Two = typename Kind::Two;
  const One mine(static_cast<float>(threadIdx.x));
  out[threadIdx.x] =
      bits_of(__shfl_xor_sync(~0U, mine, 5)) | bits_of(__shfl_down_sync(~0U, mine, 1)) << 16;
  out[32 + threadIdx.x] = bits_of_pair(__shfl_sync(~0U, Two(mine, One(0.5F)), 7));
  atomicAdd(sums + threadIdx.x % 3, One(1.0F));
  atomicAdd(reinterpret_cast<Two*>(sums + 4), Two(One(1.0F), One(2.0F)));
}
template <class Kind>
void check_exchange() {
  using One = typename Kind::One;
  Array<One> sums(6);
  Array<unsigned> out(64);
  exchange_kernel<Kind><<<1, 32>>>(sums, out);
  const std::vector<unsigned> got = out.host();
  const auto n = [](double value) { return narrow<Kind>(value); };
  for (unsigned i = 0; i < 32; ++i) {
    EXPECT(got[i] == (n(i ^ 5) | n(i < 31 ? i + 1 : i) << 16));
    EXPECT(got[32 + i] == (n(7) | n(0.5) << 16));
  }
  const std::vector<One> totals = sums.host();
  const double want[] = {11, 11, 10, 0, 32, 64};
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT(bits_of(totals[i]) == n(want[i]));
}

__global__ void architecture_kernel(int* out) {
#ifdef __CUDA_ARCH__
  *out = __CUDA_ARCH__;
#endif
}

// Names of the two headers that only pass parts on.
void check_parts() {
  const __half2 pair = __floats2half2_rn(1.5F, -2.0F);
  EXPECT(__low2float(pair) == 1.5F && __high2float(pair) == -2.0F);
  EXPECT(__half22float2(__lowhigh2highlow(pair)).x == -2.0F);
  EXPECT(__half2float(__low2half(__high2half2(pair))) == -2.0F);
  EXPECT(__half22float2(__lows2half2(pair, __half2half2(__half(4.0F)))).y == 4.0F);
  EXPECT(__half22float2(__highs2half2(pair, pair)).x == -2.0F);
  EXPECT(__half_as_ushort(__float2half(1.0F)) == 0x3c00 && __half_as_short(__half(-1)) == -17408);
  EXPECT(__half2float(__ushort_as_half(0x3c01)) == 1.0009765625F);
  EXPECT(__half22float2(__float22half2_rn(make_float2(3, 4))).y == 4.0F);
  const __nv_bfloat162 other = __floats2bfloat162_rn(1.5F, -2.0F);
  EXPECT(__low2float(other) == 1.5F && __bfloat1622float2(other).y == -2.0F);
  EXPECT(__bfloat162float(__high2bfloat16(__low2bfloat162(other))) == 1.5F);
  EXPECT(__bfloat16_as_ushort(__float2bfloat16(1.0F)) == 0x3f80);
  EXPECT(__bfloat162float(__ushort_as_bfloat16(0x3f81)) == 1.0078125F);
  EXPECT(__bfloat1622float2(__halves2bfloat162(__nv_bfloat16(1), __nv_bfloat16(2))).y == 2.0F);
}

// --- 8 bits --------------------------------------------------------------------------------------

struct Byte {
  const char* name;
  __nv_fp8_interpretation_t kind;
  Format format;
  unsigned greatest, infinity, nan_first;  // nan_first: from here on no number
};
const Byte kBytes[] = {{"e4m3", __NV_E4M3, Format(4, 3, 0x7e), 0x7e, 0x7f, 0x7f},
                       {"e5m2", __NV_E5M2, Format(5, 2, 0x7b), 0x7b, 0x7c, 0x7d}};
__global__ void bytes_kernel(const float* in, unsigned* out, __nv_fp8_interpretation_t kind) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, kind) |
           static_cast<unsigned>(__nv_cvt_float_to_fp8(in[i], __NV_NOSAT, kind)) << 8;
}
__global__ void widen_kernel(float* out, __nv_fp8_interpretation_t kind) {
  out[threadIdx.x] =
      __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(threadIdx.x), kind)));
}
void check_widening(const Byte& byte) {
  Array<float> wide_out(256);
  widen_kernel<<<1, 256>>>(wide_out, byte.kind);
  const std::vector<float> got = wide_out.host();
  for (unsigned i = 0; i < 256; ++i) {
    double want = byte.format.value(i);
    if (byte.kind == __NV_E5M2 && (i & 127) == 0x7c) want = i < 128 ? INFINITY : -INFINITY;
    EXPECT(want != want ? got[i] != got[i] : got[i] == want);
  }
}
void check_bytes(const Byte& byte) {
  std::vector<float> in;
  for (std::size_t i = 0; i < 65536; ++i) {
    const double low = byte.format.value(i % 124), high = byte.format.value(i % 124 + 1);
    const float middle = static_cast<float>((low + high) / 2);
    const float choices[] = {middle, std::nextafter(middle, 1e9F), std::nextafter(middle, 0.0F),
                             __builtin_bit_cast(float, static_cast<unsigned>(chance.bits()))};
    in.push_back((i & 4096 ? -1.0F : 1.0F) * choices[i / 124 % 4]);
  }
  Array<float> device_in(in);
  Array<unsigned> out(in.size());
  bytes_kernel<<<512, 128>>>(device_in, out, byte.kind);
  const std::vector<unsigned> got = out.host();
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (const bool saturates : {true, false}) {
      const unsigned value = got[i] >> (saturates ? 0 : 8) & 255;
      const unsigned on_host =
          __nv_cvt_float_to_fp8(in[i], saturates ? __NV_SATFINITE : __NV_NOSAT, byte.kind);
      const unsigned want = byte.format.round(in[i], saturates ? byte.greatest : byte.infinity);
      const bool is_right = in[i] != in[i] ? (value & 127) >= byte.nan_first : value == want;
      if (is_right && on_host == value) continue;
      std::printf("%s of %a: %02x, on the host %02x, not %02x\n", byte.name,
                  static_cast<double>(in[i]), value, on_host, want);
      ++wrong;
      return;
    }
  }
}
void check_byte_types() {
  EXPECT(static_cast<float>(__nv_fp8_e4m3(0.3F)) == 0.3125F);
  EXPECT(static_cast<float>(__nv_fp8_e5m2(1e9)) == 57344.0F);
  EXPECT(static_cast<float>(__nv_fp8_e4m3(__half(448.0F))) == 448.0F);
  EXPECT(__half2float(static_cast<__half>(__nv_fp8_e4m3(__nv_bfloat16(-2.5F)))) == -2.5F);
  const float2 two = static_cast<float2>(__nv_fp8x2_e4m3(make_float2(1.0F, -3.5F)));
  EXPECT(two.x == 1.0F && two.y == -3.5F);
  const float4 four = static_cast<float4>(__nv_fp8x4_e5m2(make_float4(1, 2, 3, 4)));
  EXPECT(four.x == 1.0F && four.y == 2.0F && four.z == 3.0F && four.w == 4.0F);
  EXPECT(__nv_cvt_double_to_fp8(1.0625 + 1e-12, __NV_SATFINITE, __NV_E4M3) == 0x39);
}

}  // namespace

int main() {
  Array<int> architecture(1);
  architecture_kernel<<<1, 1>>>(architecture);
  check_arithmetic<Half>(false);
  // bfloat16 has its own fused arithmetic from sm_80 on.
  check_arithmetic<Bfloat>(architecture.host()[0] < 800);
  check_functions<Half>();
  check_functions<Bfloat>();
  check_half_integers();
  check_bfloat_integers();
  check_conversions<Half>();
  check_conversions<Bfloat>();
  check_directed<Half>();
  check_directed<Bfloat>();
  check_operators<Half>();
  check_operators<Bfloat>();
  check_constants();
  check_exchange<Half>();
  check_exchange<Bfloat>();
  check_parts();
  for (const Byte& byte : kBytes) {
    check_widening(byte);
    check_bytes(byte);
  }
  check_byte_types();
  return report("narrow numbers");
}
