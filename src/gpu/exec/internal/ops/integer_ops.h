// SPDX-License-Identifier: Apache-2.0
#pragma once

// Integer operations on one lane. Internal linkage for the reason given in lane_ops.h.
// Source of the semantics: NVIDIA's PTX ISA manual, section 9.7.1 to 9.7.2 and 9.7.8 (from memory;
// tests/gpu/forms.py computes the expected values).

#include <immintrin.h>
#include <limits.h>

#include "gpu/exec/internal/ops/lane_ops.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
inline constexpr std::uint32_t kBits = 8 * sizeof(T);

template <std::uint32_t bytes, bool is_signed>
struct SizedInteger;
template <>
struct SizedInteger<4, false> {
  using Type = std::uint32_t;
};
template <>
struct SizedInteger<4, true> {
  using Type = std::int32_t;
};
template <>
struct SizedInteger<8, false> {
  using Type = std::uint64_t;
};
template <>
struct SizedInteger<8, true> {
  using Type = std::int64_t;
};
template <class T>
using Twice = typename SizedInteger<2 * sizeof(T), std::is_signed_v<T>>::Type;

/// Wraps around like the machine does, without the undefined behaviour of signed types and without
/// the promotion of short ones.
template <class T>
using Ring = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;

template <class T, Linear linear>
struct LinearBinary : Signature<T(T, T)> {
  static constexpr Linear kLinear = sizeof(T) >= 4 ? linear : Linear::kNone;
};

template <class T>
struct Add : LinearBinary<T, Linear::kAdd> {
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Ring<T>>(a) + static_cast<Ring<T>>(b));
  }
};
template <class T>
struct Sub : LinearBinary<T, Linear::kSub> {
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Ring<T>>(a) - static_cast<Ring<T>>(b));
  }
};
template <class T>
struct MulLo : LinearBinary<T, Linear::kMul> {
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Ring<T>>(a) * static_cast<Ring<T>>(b));
  }
};
template <class T>
struct MulHi : Signature<T(T, T)> {
  static T apply(T a, T b) {
    if constexpr (sizeof(T) == 8) {
      using Wide = std::conditional_t<std::is_signed_v<T>, Int128, Uint128>;
      return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> 64);
    } else {
      using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> kBits<T>);
    }
  }
};
template <class T>
struct MulWide {
  using Out = Twice<T>;
  using A = T;
  using B = T;
  static constexpr Linear kLinear = sizeof(T) == 4 ? Linear::kMulWide : Linear::kNone;
  static Out apply(T a, T b) {
    return static_cast<Out>(static_cast<Ring<Out>>(static_cast<Out>(a)) *
                            static_cast<Ring<Out>>(static_cast<Out>(b)));
  }
};
template <class T>
struct SatAdd : Signature<T(T, T)> {
  static T apply(T a, T b) {
    const std::int64_t sum = static_cast<std::int64_t>(a) + static_cast<std::int64_t>(b);
    return static_cast<T>(sum > INT_MAX ? INT_MAX : sum < INT_MIN ? INT_MIN : sum);
  }
};
template <class T>
struct SatSub : Signature<T(T, T)> {
  static T apply(T a, T b) {
    const std::int64_t sum = static_cast<std::int64_t>(a) - static_cast<std::int64_t>(b);
    return static_cast<T>(sum > INT_MAX ? INT_MAX : sum < INT_MIN ? INT_MIN : sum);
  }
};

template <class T, class Product>
struct MadOf {
  using Out = typename Product::Out;
  using A = T;
  using B = T;
  using C = Out;
  static constexpr Linear kLinear = Product::kLinear == Linear::kMul       ? Linear::kMad
                                    : Product::kLinear == Linear::kMulWide ? Linear::kMadWide
                                                                           : Linear::kNone;
  static Out apply(T a, T b, Out c) { return Add<Out>::apply(Product::apply(a, b), c); }
};
template <class T>
using MadLo = MadOf<T, MulLo<T>>;
template <class T>
using MadHi = MadOf<T, MulHi<T>>;
template <class T>
using MadWide = MadOf<T, MulWide<T>>;
template <class T>
struct MadHiSat : MadHi<T> {
  static T apply(T a, T b, T c) { return SatAdd<T>::apply(MulHi<T>::apply(a, b), c); }
};

/// The machine has no traps here: a division by zero gives all ones, a remainder its dividend.
template <class T>
struct Div : Signature<T(T, T)> {
  static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~Unsigned<T>{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return static_cast<T>(Ring<T>{0} - static_cast<Ring<T>>(a));
    }
    return static_cast<T>(a / b);
  }
};
template <class T>
struct Rem : Signature<T(T, T)> {
  static T apply(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
template <class T>
struct Neg : Signature<T(T)> {
  static T apply(T a) { return static_cast<T>(Ring<T>{0} - static_cast<Ring<T>>(a)); }
};
template <class T>
struct Abs : Signature<T(T)> {
  static T apply(T a) { return a < 0 ? Neg<T>::apply(a) : a; }
};
template <class T>
struct Min : Signature<T(T, T)> {
  static T apply(T a, T b) { return b < a ? b : a; }
};
template <class T>
struct Max : Signature<T(T, T)> {
  static T apply(T a, T b) { return a < b ? b : a; }
};
template <class T>
struct MinRelu : Signature<T(T, T)> {
  static T apply(T a, T b) { return Max<T>::apply(Min<T>::apply(a, b), 0); }
};
template <class T>
struct MaxRelu : Signature<T(T, T)> {
  static T apply(T a, T b) { return Max<T>::apply(Max<T>::apply(a, b), 0); }
};
template <class T>
struct Sad : Signature<T(T, T, T)> {
  static T apply(T a, T b, T c) {
    const T difference = a < b ? Sub<T>::apply(b, a) : Sub<T>::apply(a, b);
    return Add<T>::apply(c, difference);
  }
};

/// The lower 24 bits of a, as a number.
template <class T>
inline std::int64_t low24(T a) {
  if constexpr (std::is_signed_v<T>) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) << 8) >> 8;
  } else {
    return a & 0xffffff;
  }
}
template <class T>
struct Mul24Lo : Signature<T(T, T)> {
  static T apply(T a, T b) { return static_cast<T>(low24(a) * low24(b)); }
};
template <class T>
struct Mul24Hi : Signature<T(T, T)> {
  static T apply(T a, T b) { return static_cast<T>((low24(a) * low24(b)) >> 16); }
};
template <class T>
using Mad24Lo = MadOf<T, Mul24Lo<T>>;
template <class T>
using Mad24Hi = MadOf<T, Mul24Hi<T>>;
template <class T>
struct Mad24HiSat : Mad24Hi<T> {
  static T apply(T a, T b, T c) { return SatAdd<T>::apply(Mul24Hi<T>::apply(a, b), c); }
};

template <class T>
struct And : Signature<T(T, T)> {
  static T apply(T a, T b) { return static_cast<T>(a & b); }
};
template <class T>
struct Or : Signature<T(T, T)> {
  static T apply(T a, T b) { return static_cast<T>(a | b); }
};
template <class T>
struct Xor : Signature<T(T, T)> {
  static T apply(T a, T b) { return static_cast<T>(a ^ b); }
};
template <class T>
struct Not : Signature<T(T)> {
  static T apply(T a) { return static_cast<T>(~a); }
};
template <class T>
struct Cnot : Signature<T(T)> {
  static T apply(T a) { return a == 0 ? 1 : 0; }
};

/// Counts beyond the width give the result of shifting bit by bit: PTX clamps, C++ has no answer.
template <class T>
struct Shl : Signature<T(T, std::uint32_t)> {
  static constexpr Linear kLinear = sizeof(T) >= 4 ? Linear::kShl : Linear::kNone;
  static T apply(T a, std::uint32_t b) {
    const Ring<T> shifted = static_cast<Ring<T>>(a) << (b & (kBits<Ring<T>> - 1));
    return b < kBits<T> ? static_cast<T>(shifted) : T{0};
  }
};
template <class T>
struct Shr : Signature<T(T, std::uint32_t)> {
  static T apply(T a, std::uint32_t b) {
    const std::uint32_t count = b < kBits<T> ? b : kBits<T> - 1;
    if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> count);
    return b < kBits<T> ? static_cast<T>(a >> count) : T{0};
  }
};

/// shf: the 64 bits {b, a} shifted, 32 of them.
template <bool is_left, bool wraps>
struct Shf : Signature<std::uint32_t(std::uint32_t, std::uint32_t, std::uint32_t)> {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    const std::uint32_t count = wraps ? (c & 31) : (c < 32 ? c : 32);
    const std::uint64_t both = (static_cast<std::uint64_t>(b) << 32) | a;
    if constexpr (is_left) return static_cast<std::uint32_t>((both << count) >> 32);
    return static_cast<std::uint32_t>(both >> count);
  }
};

inline std::uint32_t count_ones(std::uint64_t value) {
  value = value - ((value >> 1) & 0x5555555555555555);
  value = (value & 0x3333333333333333) + ((value >> 2) & 0x3333333333333333);
  value = (value + (value >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return static_cast<std::uint32_t>((value * 0x0101010101010101) >> 56);
}
template <class T>
struct Popc : Signature<std::uint32_t(T)> {
  static std::uint32_t apply(T a) { return count_ones(static_cast<Unsigned<T>>(a)); }
};
template <class T>
struct Clz : Popc<T> {
  static std::uint32_t apply(T a) {
    if (a == 0) return kBits<T>;
    return static_cast<std::uint32_t>(__builtin_clzll(static_cast<std::uint64_t>(a))) -
           (64 - kBits<T>);
  }
};
/// Place of the highest bit that is not a sign bit; all ones: there is none.
template <class T>
struct Bfind : Popc<T> {
  static std::uint32_t apply(T a) {
    auto bits = static_cast<Unsigned<T>>(a);
    if (std::is_signed_v<T> && a < 0) bits = static_cast<Unsigned<T>>(~bits);
    return bits == 0 ? ~0U : kBits<T> - 1 - Clz<Unsigned<T>>::apply(bits);
  }
};
template <class T>
struct BfindShift : Popc<T> {
  static std::uint32_t apply(T a) {
    const std::uint32_t place = Bfind<T>::apply(a);
    return place == ~0U ? place : kBits<T> - 1 - place;
  }
};
template <class T>
struct Brev : Signature<T(T)> {
  static T apply(T a) {
    std::uint64_t v = a;
    v = ((v >> 1) & 0x5555555555555555) | ((v & 0x5555555555555555) << 1);
    v = ((v >> 2) & 0x3333333333333333) | ((v & 0x3333333333333333) << 2);
    v = ((v >> 4) & 0x0f0f0f0f0f0f0f0f) | ((v & 0x0f0f0f0f0f0f0f0f) << 4);
    v = ((v >> 8) & 0x00ff00ff00ff00ff) | ((v & 0x00ff00ff00ff00ff) << 8);
    v = ((v >> 16) & 0x0000ffff0000ffff) | ((v & 0x0000ffff0000ffff) << 16);
    v = (v >> 32) | (v << 32);
    return static_cast<T>(v >> (64 - kBits<T>));
  }
};

/// Bits [position, position + length) of a, the sign being the last of them that exists.
template <class T>
struct Bfe : Signature<T(T, std::uint32_t, std::uint32_t)> {
  static T apply(T a, std::uint32_t b, std::uint32_t c) {
    const std::uint32_t position = b & 0xff, length = c & 0xff;
    const auto bits = static_cast<Unsigned<T>>(a);
    Unsigned<T> sign = 0;
    if (std::is_signed_v<T> && length != 0) {
      const std::uint32_t last =
          position + length - 1 < kBits<T> - 1 ? position + length - 1 : kBits<T> - 1;
      sign = (bits >> last & 1) != 0 ? static_cast<Unsigned<T>>(~Unsigned<T>{0}) : Unsigned<T>{0};
    }
    const Unsigned<T> shifted = position < kBits<T> ? bits >> position : Unsigned<T>{0};
    const std::uint32_t left = position < kBits<T> ? kBits<T> - position : 0;
    const std::uint32_t kept = length < left ? length : left;
    const Unsigned<T> mask =
        kept >= kBits<T> ? ~Unsigned<T>{0} : static_cast<Unsigned<T>>((Unsigned<T>{1} << kept) - 1);
    return static_cast<T>((shifted & mask) | (sign & static_cast<Unsigned<T>>(~mask)));
  }
};
template <class T>
struct Bfi {
  using Out = T;
  using A = T;
  static T apply(T a, T b, std::uint32_t c, std::uint32_t d) {
    const std::uint32_t position = c & 0xff, length = d & 0xff;
    if (position >= kBits<T> || length == 0) return b;
    const T ones =
        length >= kBits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    const T mask = static_cast<T>(ones << position);
    return static_cast<T>((b & static_cast<T>(~mask)) | (static_cast<T>(a << position) & mask));
  }
};
template <bool clamps, bool is_signed>
struct Szext : Signature<std::uint32_t(std::uint32_t, std::uint32_t)> {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t length = clamps ? (b < 32 ? b : 32) : (b & 31);
    if (length == 0) return 0;
    if (length == 32) return a;
    const std::uint32_t mask = (1U << length) - 1;
    const bool is_negative = is_signed && (a >> (length - 1) & 1) != 0;
    return is_negative ? (a | ~mask) : (a & mask);
  }
};
template <bool clamps>
struct Bmsk : Signature<std::uint32_t(std::uint32_t, std::uint32_t)> {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t position = clamps ? (a < 32 ? a : 32) : (a & 31);
    const std::uint32_t width = clamps ? (b < 32 ? b : 32) : (b & 31);
    const std::uint64_t ones = (std::uint64_t{1} << width) - 1;
    return static_cast<std::uint32_t>(ones << position);
  }
};

// The widest vectors of the instruction set, for operations that the compiler does not find by
// itself: bytes picked by others, sums of products of neighbours. All are always inlined.
#if defined(__AVX512BW__)
typedef __m512i WideWords;  // NOLINT(modernize-use-using)
#define KANSOKU_WIDE(operation) _mm512_##operation
#elif defined(__AVX2__)
typedef __m256i WideWords;  // NOLINT(modernize-use-using)
#define KANSOKU_WIDE(operation) _mm256_##operation
#else
typedef __m128i WideWords;  // NOLINT(modernize-use-using)
#define KANSOKU_WIDE(operation) _mm_##operation
#endif
inline constexpr std::uint32_t kWideLanes = sizeof(WideWords) / sizeof(std::uint32_t);

using TernaryBits = Signature<std::uint32_t(std::uint32_t, std::uint32_t, std::uint32_t)>;
/// Byte `index` (3 bits; the fourth replicates its sign) of the eight bytes {b, a}.
inline std::uint32_t picked_byte(std::uint64_t both, std::uint32_t index) {
  const auto byte = static_cast<std::uint32_t>(both >> (8 * (index & 7)) & 0xff);
  if ((index & 8) == 0) return byte;
  return (byte & 0x80) != 0 ? 0xff : 0;
}
struct Prmt : TernaryBits {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    const std::uint64_t both = (static_cast<std::uint64_t>(b) << 32) | a;
    return picked_byte(both, c & 15) | picked_byte(both, c >> 4 & 15) << 8 |
           picked_byte(both, c >> 8 & 15) << 16 | picked_byte(both, c >> 12 & 15) << 24;
  }
  /// The machine picks bytes within 16; where the highest bit of the number is set it gives 0.
  static void pick(const WideWords& a, const WideWords& b, const WideWords& c,
                   const WideWords& own_bytes, WideWords& out) {
    const auto bytes = [](int value) { return KANSOKU_WIDE(set1_epi8)(static_cast<char>(value)); };
    const WideWords zero{};
    // 64 bits are shifted, but the rest of the lower 32 stays within them.
    WideWords index = c & KANSOKU_WIDE(set1_epi32)(0xffff);
    index = (index | (index << 8)) & KANSOKU_WIDE(set1_epi32)(0x00ff00ff);
    index = (index | (index << 4)) & bytes(0x0f);
    const WideWords place = (index & bytes(3)) | own_bytes;
    const WideWords not_in_a = KANSOKU_WIDE(slli_epi16)(index & bytes(4), 5);
    const WideWords picked = KANSOKU_WIDE(shuffle_epi8)(a, place | not_in_a) |
                             KANSOKU_WIDE(shuffle_epi8)(b, place | (not_in_a ^ bytes(0x80)));
    const WideWords sign =
        KANSOKU_WIDE(sub_epi8)(zero, KANSOKU_WIDE(srli_epi16)(picked & bytes(0x80), 7));
    const WideWords takes_sign =
        KANSOKU_WIDE(sub_epi8)(zero, KANSOKU_WIDE(srli_epi16)(index & bytes(8), 3));
    out = (picked & ~takes_sign) | (sign & takes_sign);
  }
  static void apply_all(std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b,
                        const std::uint32_t* c) {
    alignas(sizeof(WideWords)) std::uint32_t own[kWideLanes];  // place of the word in its 16 bytes
    for (std::uint32_t i = 0; i < kWideLanes; ++i)
      own[i] = (i & 3) * 0x04040404;
    for (std::uint32_t i = 0; i < kLanes; i += kWideLanes) {
      pick(*reinterpret_cast<const WideWords*>(a + i), *reinterpret_cast<const WideWords*>(b + i),
           *reinterpret_cast<const WideWords*>(c + i), *reinterpret_cast<const WideWords*>(own),
           *reinterpret_cast<WideWords*>(to + i));
    }
  }
};
/// The special modes pick by the lowest two bits of c; a row for each, lowest byte in the lowest
/// nibble.
enum class PrmtMode { kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };
template <PrmtMode mode>
struct PrmtBy : TernaryBits {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    constexpr std::uint32_t kRows[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
        {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
        {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    return Prmt::apply(a, b, kRows[static_cast<int>(mode)][c & 3]);
  }
};

/// The even or the odd bytes, as 16-bit numbers.
template <class Byte, bool is_odd>
inline void spread_bytes(const WideWords& words, WideWords& out) {
  const WideWords up = is_odd ? words : KANSOKU_WIDE(slli_epi16)(words, 8);
  out = std::is_signed_v<Byte> ? KANSOKU_WIDE(srai_epi16)(up, 8) : KANSOKU_WIDE(srli_epi16)(up, 8);
}

template <class A4, class B4>
struct Dp4a : TernaryBits {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint32_t sum = c;
    for (std::uint32_t k = 0; k < 4; ++k) {
      sum += static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<A4>(a >> (8 * k))) *
                                        static_cast<std::int32_t>(static_cast<B4>(b >> (8 * k))));
    }
    return sum;
  }
  static void apply_all(std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b,
                        const std::uint32_t* c) {
    for (std::uint32_t i = 0; i < kLanes; i += kWideLanes) {
      const auto& wide_a = *reinterpret_cast<const WideWords*>(a + i);
      const auto& wide_b = *reinterpret_cast<const WideWords*>(b + i);
      WideWords even_a, even_b, odd_a, odd_b;
      spread_bytes<A4, false>(wide_a, even_a);
      spread_bytes<B4, false>(wide_b, even_b);
      spread_bytes<A4, true>(wide_a, odd_a);
      spread_bytes<B4, true>(wide_b, odd_b);
      const WideWords products = KANSOKU_WIDE(add_epi32)(KANSOKU_WIDE(madd_epi16)(even_a, even_b),
                                                         KANSOKU_WIDE(madd_epi16)(odd_a, odd_b));
      *reinterpret_cast<WideWords*>(to + i) =
          KANSOKU_WIDE(add_epi32)(products, *reinterpret_cast<const WideWords*>(c + i));
    }
  }
};
#undef KANSOKU_WIDE
template <class A2, class B2, bool is_high>
struct Dp2a : TernaryBits {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint32_t sum = c;
    for (std::uint32_t k = 0; k < 2; ++k) {
      const std::uint32_t byte = b >> (8 * (k + (is_high ? 2 : 0)));
      sum += static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<A2>(a >> (16 * k))) *
                                        static_cast<std::int32_t>(static_cast<B2>(byte)));
    }
    return sum;
  }
};

/// Bytes or half-words side by side, as the SIMD video instructions see them.
struct VideoAdd {
  static std::int32_t of(std::int32_t a, std::int32_t b) { return a + b; }
};
struct VideoSub {
  static std::int32_t of(std::int32_t a, std::int32_t b) { return a - b; }
};
struct VideoAverage {  // rounded away from zero
  static std::int32_t of(std::int32_t a, std::int32_t b) { return (a + b + (a + b >= 0)) >> 1; }
};
struct VideoDifference {
  static std::int32_t of(std::int32_t a, std::int32_t b) { return a > b ? a - b : b - a; }
};
struct VideoMin {
  static std::int32_t of(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
};
struct VideoMax {
  static std::int32_t of(std::int32_t a, std::int32_t b) { return a > b ? a : b; }
};
template <class Compare>
struct VideoSet {
  static std::int32_t of(std::int32_t a, std::int32_t b) { return Compare::apply(a, b) ? 1 : 0; }
};
enum class VideoEnd : std::uint8_t { kWrap, kSaturate, kSum };
/// `Part`: std::int8_t to std::uint16_t, of all three operands. The merge with c needs a mask, and
/// the form without one takes every part from the result.
template <class Part, class F, VideoEnd end>
struct Video : TernaryBits {
  static constexpr std::uint32_t kBits = 8 * sizeof(Part), kMask = (1U << kBits) - 1;
  static constexpr bool kIsSigned = static_cast<Part>(-1) < static_cast<Part>(0);
  static constexpr std::int32_t kLeast = kIsSigned ? -(1 << (kBits - 1)) : 0;
  static constexpr std::int32_t kMost = static_cast<std::int32_t>(kIsSigned ? kMask >> 1 : kMask);

  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint32_t out = end == VideoEnd::kSum ? c : 0;
    for (std::uint32_t at = 0; at < 32; at += kBits) {
      std::int32_t part = F::of(static_cast<Part>(a >> at), static_cast<Part>(b >> at));
      if (end == VideoEnd::kSaturate) part = part < kLeast ? kLeast : part > kMost ? kMost : part;
      if (end == VideoEnd::kSum) {
        out += static_cast<std::uint32_t>(part);
      } else {
        out |= (static_cast<std::uint32_t>(part) & kMask) << at;
      }
    }
    return out;
  }
};

/// add.cc, addc, sub.cc, subc: carry in and out by lane. Operands in a and b, or for mad in a, b,
/// c.
template <class T, bool is_subtraction, bool reads, bool writes>
const Code* with_carry(Warp& warp, const T* a, const T* b, const Code* code) {
  std::uint32_t carry = 0;
  const std::uint32_t before = reads ? warp.carry : 0;
  write_lanes<T>(warp, code->d, [&](std::uint32_t i) {
    const T extra = before >> i & 1;
    if constexpr (is_subtraction) {
      const T result = a[i] - b[i] - extra;
      carry |= static_cast<std::uint32_t>(a[i] < b[i] || (extra != 0 && a[i] == b[i])) << i;
      return result;
    } else {
      const T sum = a[i] + b[i];
      const T result = sum + extra;
      carry |= static_cast<std::uint32_t>(sum < a[i] || result < sum) << i;
      return result;
    }
  });
  if (writes) warp.carry = (warp.carry & ~warp.mask) | (carry & warp.mask);
  return code + 1;
}
template <class T, bool is_subtraction, bool reads, bool writes>
const Code* add_with_carry(Warp& warp, const Code* code) {
  const T* const a = in<T>(warp, code->a);
  const T* const b = in<T>(warp, code->b);
  return with_carry<T, is_subtraction, reads, writes>(warp, a, b, code);
}
template <class T, class Product, bool reads, bool writes>
const Code* mad_with_carry(Warp& warp, const Code* code) {
  const T* const a = in<T>(warp, code->a);
  const T* const b = in<T>(warp, code->b);
  const T* const c = in<T>(warp, code->c);
  using P = typename Product::A;
  T product[kLanes];
  LANE_LOOP product[i] = to_lane<P>(Product::apply(from_lane<P>(a[i]), from_lane<P>(b[i])));
  return with_carry<T, false, reads, writes>(warp, product, c, code);
}

/// lop3: extra is the table of truth, (bit of a, b, c) -> bit number a*4 + b*2 + c.
inline const Code* lop3(Warp& warp, const Code* code) {
  const auto* const a = in<std::uint32_t>(warp, code->a);
  const auto* const b = in<std::uint32_t>(warp, code->b);
  const auto* const c = in<std::uint32_t>(warp, code->c);
  std::uint32_t rows[8];
  for (std::uint32_t row = 0; row < 8; ++row)
    rows[row] = (code->extra >> row & 1) != 0 ? ~0U : 0U;
  write_lanes<std::uint32_t>(warp, code->d, [&](std::uint32_t i) {
    const std::uint32_t x = a[i], y = b[i], z = c[i];
    return (rows[0] & ~x & ~y & ~z) | (rows[1] & ~x & ~y & z) | (rows[2] & ~x & y & ~z) |
           (rows[3] & ~x & y & z) | (rows[4] & x & ~y & ~z) | (rows[5] & x & ~y & z) |
           (rows[6] & x & y & ~z) | (rows[7] & x & y & z);
  });
  return code + 1;
}

template <class T>
struct Comparison {
  using A = T;
  static constexpr bool kIsOrder = true;
};
template <class T>
struct Eq : Comparison<T> {
  static constexpr bool kIsOrder = false;
  static bool apply(T a, T b) { return a == b; }
};
template <class T>
struct Ne : Comparison<T> {
  static constexpr bool kIsOrder = false;
  static bool apply(T a, T b) { return a != b; }
};
template <class T>
struct Lt : Comparison<T> {
  static bool apply(T a, T b) { return a < b; }
};
template <class T>
struct Le : Comparison<T> {
  static bool apply(T a, T b) { return a <= b; }
};
template <class T>
struct Gt : Comparison<T> {
  static bool apply(T a, T b) { return a > b; }
};
template <class T>
struct Ge : Comparison<T> {
  static bool apply(T a, T b) { return a >= b; }
};

}  // namespace
}  // namespace kansoku::gpu::exec
