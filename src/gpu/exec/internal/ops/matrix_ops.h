// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of small matrices whose elements lie in the registers of a warp: mma and wmma. Compiled
// once for each instruction set; lane_ops.h has the rules for code here.

#include "gpu/exec/internal/ops/float_ops.h"
#include "gpu/exec/internal/ops/matrix_site.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

// --- elements ------------------------------------------------------------------------------------

struct Tf32 {};

/// Elements of a and b: how many lie in a word, and the type in which their products are added.
/// Products are exact: those of bytes and their sums in single precision (32 * 255 * 255 < 2^24),
/// others in double, where the sums lose next to nothing.
template <class Element>
struct Factor {  // of 8 bits
  using Sum = float;
  static constexpr std::uint32_t kPerWord = 4;
  static Sum of(std::uint32_t word, std::uint32_t which) {
    const std::uint32_t top = word << (24 - 8 * which);
    if constexpr (std::is_signed_v<Element>)
      return static_cast<Sum>(static_cast<std::int32_t>(top) >> 24);
    return static_cast<Sum>(static_cast<std::int32_t>(top >> 24));
  }
};
template <>
struct Factor<Half> {
  using Sum = double;
  static constexpr std::uint32_t kPerWord = 2;
  /// As to_float, without a branch.
  static Sum of(std::uint32_t word, std::uint32_t which) {
    const std::uint32_t bits = word >> 16 * which, magnitude = bits & 0x7fff;
    const std::uint32_t is_small = magnitude < 0x0400 ? ~0U : 0,
                        is_special = magnitude < 0x7c00 ? 0 : ~0U;
    // A subnormal half is read as one with 2^-14 added, which is taken away.
    const std::uint32_t single =
        (magnitude << 13) + 0x38000000 + (is_small & 0x00800000) + (is_special & 0x38000000);
    const float size = float_of(single) - float_of(is_small & 0x38800000);
    return static_cast<double>(float_of(bits_of(size) | (bits & 0x8000) << 16));
  }
};
template <>
struct Factor<BFloat> {
  using Sum = double;
  static constexpr std::uint32_t kPerWord = 2;
  static Sum of(std::uint32_t word, std::uint32_t which) {
    return static_cast<double>(float_of(which == 0 ? word << 16 : word & 0xffff0000));
  }
};
/// A single whose last 13 bits do not count.
template <>
struct Factor<Tf32> {
  using Sum = double;
  static constexpr std::uint32_t kPerWord = 1;
  static Sum of(std::uint32_t word, std::uint32_t) {
    return static_cast<double>(float_of(word & 0xffffe000));
  }
};

/// As narrowed_from_double<Half>, without a branch: rounds to a multiple of the last place that the
/// half will have, then takes the bits.
inline std::uint32_t half_bits_of(double value) {
  constexpr std::int64_t kExponent = std::int64_t{0x7ff} << 52, kOne = std::int64_t{1} << 52;
  constexpr std::int64_t kLeast = (1023 - 14) * kOne, kOver = (1023 + 16) * kOne;  // 2^-14, 2^16
  const auto whole = static_cast<std::int64_t>(bits_of(value));
  const std::int64_t size = whole & 0x7fffffffffffffff;
  std::int64_t scale = size & kExponent;
  scale = scale < kLeast ? kLeast : scale;
  scale = scale > kOver ? kOver : scale;
  // 3/2 of 2^52 places: to add it rounds, and to take it away gives the rounded value.
  const double shift = double_of(static_cast<std::uint64_t>((scale + 42 * kOne) | kOne / 2));
  const double rounded = (double_of(static_cast<std::uint64_t>(size)) + shift) - shift;
  const auto bits = static_cast<std::int64_t>(bits_of(rounded));
  // Below 2^-14 a multiple of 2^-24, else 1.x * 2^e.
  const auto small = static_cast<std::int64_t>(bits_of(rounded + 0x1p28)) & 0x7ff;
  const std::int64_t normal = (bits >> 42) - (std::int64_t{1023 - 15} << 10);
  const std::int64_t is_small = bits < kLeast ? -1 : 0, is_over = bits < kOver ? 0 : -1;
  const std::int64_t is_nan = size > kExponent ? -1 : 0;
  std::int64_t half = (small & is_small) | (normal & ~is_small);
  half = (half & ~is_over) | (0x7c00 & is_over) | (whole >> 48 & 0x8000);
  half = (half & ~is_nan) | (0x7fff & is_nan);
  return static_cast<std::uint32_t>(half);
}

/// Elements of c and d: single or whole numbers, one a word, or two halves.
template <class Element>
inline constexpr std::uint32_t kSumsPerWord = sizeof(Element) == 2 ? 2 : 1;

template <class Element, class Sum>
inline Sum begun_sum(std::uint32_t word, std::uint32_t which) {
  if constexpr (sizeof(Element) == 2) {
    return Factor<Half>::of(word, which);
  } else {
    return static_cast<Sum>(float_of(word));
  }
}

// --- products ------------------------------------------------------------------------------------

#if defined(__AVX512F__)
inline constexpr std::uint32_t kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr std::uint32_t kVectorBytes = 32;
#else
inline constexpr std::uint32_t kVectorBytes = 16;
#endif

template <class T, std::uint32_t rows>
struct Vectors {
  static constexpr std::uint32_t kLength =
      kVectorBytes / sizeof(T) < rows ? kVectorBytes / sizeof(T) : rows;
  typedef T Type __attribute__((vector_size(kLength * sizeof(T)), aligned(alignof(T)), may_alias));
  static constexpr std::uint32_t kCount = rows / kLength;
  /// Columns at a time: enough sums to keep the adders busy, few enough for the registers.
  static constexpr std::uint32_t kColumns = kCount >= 8 ? 1 : 8 / kCount;
};

/// The matrices of a product on the stack: a and the sums by columns, b as Order::b(k, column)
/// says.
template <class T, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth>
struct Tile {
  alignas(64) T a[depth * rows];
  alignas(64) T b[depth * columns];
  alignas(64) T sums[columns * rows];

  /// Adds in the order of k, one product after the other.
  template <class Order>
  void multiply() {
    using V = Vectors<T, rows>;
    using Vector = typename V::Type;
    constexpr std::uint32_t kAtOnce = V::kColumns < columns ? V::kColumns : columns;
    const auto sums_at = [this](std::uint32_t v, std::uint32_t column) {
      return reinterpret_cast<Vector*>(&sums[column * rows + v * V::kLength]);
    };
    for (std::uint32_t first = 0; first < columns; first += kAtOnce) {
      Vector sum[kAtOnce][V::kCount];
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        for (std::uint32_t v = 0; v < V::kCount; ++v)
          sum[j][v] = *sums_at(v, first + j);
      }
#pragma GCC unroll 32
      for (std::uint32_t k = 0; k < depth; ++k) {
        Vector column[V::kCount];
        for (std::uint32_t v = 0; v < V::kCount; ++v)
          column[v] = *reinterpret_cast<const Vector*>(&a[k * rows + v * V::kLength]);
        for (std::uint32_t j = 0; j < kAtOnce; ++j) {
          const T factor = b[Order::b(k, first + j)];
          for (std::uint32_t v = 0; v < V::kCount; ++v)
            sum[j][v] += column[v] * factor;
        }
      }
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        for (std::uint32_t v = 0; v < V::kCount; ++v)
          *sums_at(v, first + j) = sum[j][v];
      }
    }
  }
};

/// Lane 4 g + t becomes place 8 t + g, and back.
inline void to_columns(const std::uint32_t* lanes, std::uint32_t* places) {
  for (std::uint32_t t = 0; t < 4; ++t) {
    for (std::uint32_t g = 0; g < 8; ++g)
      places[t * 8 + g] = lanes[g * 4 + t];
  }
}
inline void to_rows(const std::uint32_t* places, std::uint32_t* lanes) {
  for (std::uint32_t g = 0; g < 8; ++g) {
    for (std::uint32_t t = 0; t < 4; ++t)
      lanes[g * 4 + t] = places[t * 8 + g];
  }
}

/// Final sum of a product of whole numbers: the elements of c lie beside the sums, which begin with
/// zero.
template <bool saturates>
inline std::uint32_t whole_sum(std::uint32_t begin, std::uint32_t more) {
  const std::uint32_t sum = begin + more;
  if constexpr (!saturates) return sum;
  // Both of one sign and the sum of the other: the greatest or the least of that sign.
  const std::uint32_t limit = (begin >> 31) + 0x7fffffff;
  return ((sum ^ begin) & (sum ^ more)) >> 31 != 0 ? limit : sum;
}

/// Source of the layouts: PTX ISA manual, "Matrix Fragments for mma.m8n8k16", "m16n8k4", "m16n8k8",
/// "m16n8k16", "m16n8k32". In all of them lane 4 g + t holds row g of a tile of 8 rows of a, with
/// the columns t * n to t * n + n - 1 where n elements fill a word, column g of b likewise, and of
/// c and d in row g the columns 2 t and 2 t + 1. Tiles of a follow each other by rows first.
template <class A, class B, class C, std::uint32_t rows, std::uint32_t depth,
          bool saturates = false>
struct Mma {
  using T = typename Factor<A>::Sum;
  static constexpr std::uint32_t kColumns = 8, kPerWord = Factor<A>::kPerWord;
  static constexpr std::uint32_t kTilesDown = rows / 8, kTilesAcross = depth / (4 * kPerWord);
  static constexpr bool kIsWhole = std::is_integral_v<C>;
  static constexpr std::uint32_t kSumWords = kTilesDown * 2 / kSumsPerWord<C>;
  static constexpr std::uint32_t kWords[4] = {kSumWords, kTilesDown* kTilesAcross, kTilesAcross,
                                              kSumWords};

  /// As they come: of each word the first elements of all lanes, then the second.
  struct Order {
    static constexpr std::uint32_t b(std::uint32_t k, std::uint32_t column) {
      const std::uint32_t word = k / (4 * kPerWord);
      return (word * kPerWord + k % kPerWord) * kLanes + column * 4 + k / kPerWord % 4;
    }
  };
  using Matrices = Tile<T, rows, kColumns, depth>;

  /// Four columns of 8 rows.
  static void put_columns(const T* from, T* to, std::uint32_t columns_between) {
    for (std::uint32_t t = 0; t < 4; ++t) {
      for (std::uint32_t g = 0; g < 8; ++g)
        to[std::size_t{t} * columns_between * rows + g] = from[t * 8 + g];
    }
  }

  static void read_a(Warp& warp, const MatrixSlots& slots, Matrices& tile) {
    for (std::uint32_t word = 0; word < kTilesDown * kTilesAcross; ++word) {
      alignas(64) std::uint32_t column[kLanes];
      to_columns(in<std::uint32_t>(warp, slots.a[word]), column);
      for (std::uint32_t which = 0; which < kPerWord; ++which) {
        alignas(64) T elements[kLanes];
        LANE_LOOP elements[i] = Factor<A>::of(column[i], which);
        const std::uint32_t k = word / kTilesDown * 4 * kPerWord + which;
        put_columns(elements, tile.a + std::size_t{k * rows + word % kTilesDown * 8}, kPerWord);
      }
    }
  }
  static void read_b(Warp& warp, const MatrixSlots& slots, Matrices& tile) {
    for (std::uint32_t word = 0; word < kTilesAcross; ++word) {
      const std::uint32_t* const lanes = in<std::uint32_t>(warp, slots.b[word]);
      for (std::uint32_t which = 0; which < kPerWord; ++which) {
        T* const to = tile.b + std::size_t{word * kPerWord + which} * kLanes;
        LANE_LOOP to[i] = Factor<B>::of(lanes[i], which);
      }
    }
  }
  static void read_sums(Warp& warp, const MatrixSlots& slots, Matrices& tile) {
    for (std::uint32_t nth = 0; nth < kTilesDown * 2; ++nth) {
      alignas(64) T elements[kLanes];
      if constexpr (kIsWhole) {
        LANE_LOOP elements[i] = 0;
      } else {
        alignas(64) std::uint32_t column[kLanes];
        to_columns(in<std::uint32_t>(warp, slots.c[nth / kSumsPerWord<C>]), column);
        LANE_LOOP elements[i] = begun_sum<C, T>(column[i], nth % 2);
      }
      put_columns(elements, tile.sums + std::size_t{nth % 2 * rows + nth / 2 * 8}, 2);
    }
  }
  /// The sums that one word of a lane holds, or one of its halves, by columns.
  static void take_columns(const Matrices& tile, std::uint32_t nth, T* to) {
    const T* const from = tile.sums + std::size_t{nth % 2 * rows + nth / 2 * 8};
    for (std::uint32_t t = 0; t < 4; ++t) {
      for (std::uint32_t g = 0; g < 8; ++g)
        to[t * 8 + g] = from[std::size_t{t} * 2 * rows + g];
    }
  }
  static void write_sums(Warp& warp, const MatrixSlots& slots, const Matrices& tile) {
    // Words of c may lie where d goes: all are read before.
    alignas(64) std::uint32_t results[kSumWords][kLanes];
    for (std::uint32_t word = 0; word < kSumWords; ++word) {
      alignas(64) T from[kSumsPerWord<C> * kLanes];
      for (std::uint32_t which = 0; which < kSumsPerWord<C>; ++which)
        take_columns(tile, word * kSumsPerWord<C> + which, from + std::size_t{which} * kLanes);
      alignas(64) std::uint32_t column[kLanes];
      if constexpr (kIsWhole) {
        LANE_LOOP column[i] = static_cast<std::uint32_t>(static_cast<std::int32_t>(from[i]));
      } else if constexpr (sizeof(C) == 2) {
        LANE_LOOP column[i] = half_bits_of(from[i]) | half_bits_of(from[i + kLanes]) << 16;
      } else {
        LANE_LOOP column[i] = bits_of(canonical(static_cast<float>(from[i])));
      }
      to_rows(column, results[word]);
      if constexpr (kIsWhole) {
        const std::uint32_t* const begin = in<std::uint32_t>(warp, slots.c[word]);
        std::uint32_t* const sums = results[word];
        LANE_LOOP sums[i] = whole_sum<saturates>(begin[i], sums[i]);
      }
    }
    for (std::uint32_t word = 0; word < kSumWords; ++word) {
      std::uint32_t* const d = out<std::uint32_t>(warp, slots.d[word]);
      LANE_LOOP d[i] = results[word][i];
    }
  }

  static void run(Warp& warp, const MatrixSlots& slots) {
    Matrices tile;
    read_a(warp, slots, tile);
    read_b(warp, slots, tile);
    read_sums(warp, slots, tile);
    tile.template multiply<Order>();
    write_sums(warp, slots, tile);
  }
  static void list(const MatrixSink& sink, const char* name) {
    sink.add(sink.context, name, kWords, run);
  }
};

// --- wmma ----------------------------------------------------------------------------------------

/// wmma: PTX leaves open which lane holds which element. Here a lane's elements of a follow each
/// other in a row, those of b in a column (decoder_matrix.cc loads them so); those of c and d lie
/// as in mma, tile by tile. Halves of a and b fill 8 words, of which the first hold the elements.
template <class A, class B, class C, class D, std::uint32_t rows, std::uint32_t columns,
          bool saturates = false>
struct Wmma {
  using T = typename Factor<A>::Sum;
  static constexpr std::uint32_t kDepth = 16, kPerWord = Factor<A>::kPerWord;
  static constexpr std::uint32_t kWordsA = rows * kDepth / kLanes / kPerWord;
  static constexpr std::uint32_t kWordsB = columns * kDepth / kLanes / kPerWord;
  static constexpr std::uint32_t kSums = rows * columns / kLanes, kTilesDown = rows / 8;
  static constexpr bool kIsWhole = std::is_integral_v<C>, kIsHalf = std::is_same_v<A, Half>;
  static constexpr std::uint32_t kWords[4] = {kSums / kSumsPerWord<D>, kIsHalf ? 8 : kWordsA,
                                              kIsHalf ? 8 : kWordsB, kSums / kSumsPerWord<C>};
  struct Order {
    static constexpr std::uint32_t b(std::uint32_t k, std::uint32_t column) {
      return column * kDepth + k;
    }
  };
  using Matrices = Tile<T, rows, columns, kDepth>;

  static std::uint32_t row_of(std::uint32_t lane, std::uint32_t nth) {
    return lane / 4 + nth / 2 % kTilesDown * 8;
  }
  static std::uint32_t column_of(std::uint32_t lane, std::uint32_t nth) {
    return lane % 4 * 2 + nth % 2 + nth / 2 / kTilesDown * 8;
  }
  static void read_factors(Warp& warp, const MatrixSlots& slots, Matrices& tile) {
    alignas(64) T elements[kLanes];
    for (std::uint32_t nth = 0; nth < kWordsA * kPerWord; ++nth) {
      const std::uint32_t* const lanes = in<std::uint32_t>(warp, slots.a[nth / kPerWord]);
      LANE_LOOP elements[i] = Factor<A>::of(lanes[i], nth % kPerWord);
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t at = lane * kWordsA * kPerWord + nth;
        tile.a[at % kDepth * rows + at / kDepth] = elements[lane];
      }
    }
    for (std::uint32_t nth = 0; nth < kWordsB * kPerWord; ++nth) {
      const std::uint32_t* const lanes = in<std::uint32_t>(warp, slots.b[nth / kPerWord]);
      LANE_LOOP elements[i] = Factor<B>::of(lanes[i], nth % kPerWord);
      for (std::uint32_t lane = 0; lane < kLanes; ++lane)
        tile.b[lane * kWordsB * kPerWord + nth] = elements[lane];
    }
  }
  static void read_sums(Warp& warp, const MatrixSlots& slots, Matrices& tile) {
    alignas(64) T elements[kLanes];
    for (std::uint32_t nth = 0; nth < kSums; ++nth) {
      const std::uint32_t* const lanes = in<std::uint32_t>(warp, slots.c[nth / kSumsPerWord<C>]);
      LANE_LOOP elements[i] = kIsWhole ? T{0} : begun_sum<C, T>(lanes[i], nth % 2);
      for (std::uint32_t lane = 0; lane < kLanes; ++lane)
        tile.sums[column_of(lane, nth) * rows + row_of(lane, nth)] = elements[lane];
    }
  }
  static std::uint32_t result(T sum, std::uint32_t begin) {
    if constexpr (kIsWhole)
      return whole_sum<saturates>(begin,
                                  static_cast<std::uint32_t>(static_cast<std::int32_t>(sum)));
    else if constexpr (sizeof(D) == 2)
      return half_bits_of(sum);
    else
      return bits_of(canonical(static_cast<float>(sum)));
  }
  static void write_sums(Warp& warp, const MatrixSlots& slots, const Matrices& tile) {
    alignas(64) std::uint32_t results[kSums][kLanes];
    alignas(64) T elements[kLanes];
    for (std::uint32_t nth = 0; nth < kSums; ++nth) {
      for (std::uint32_t lane = 0; lane < kLanes; ++lane)
        elements[lane] = tile.sums[column_of(lane, nth) * rows + row_of(lane, nth)];
      const std::uint32_t* const begin = in<std::uint32_t>(warp, slots.c[nth / kSumsPerWord<C>]);
      std::uint32_t* const to = results[nth];
      LANE_LOOP to[i] = result(elements[i], begin[i]);
    }
    for (std::uint32_t word = 0; word < kWords[0]; ++word) {
      std::uint32_t* const d = out<std::uint32_t>(warp, slots.d[word]);
      if constexpr (sizeof(D) == 2) {
        LANE_LOOP d[i] = results[2 * word][i] | results[2 * word + 1][i] << 16;
      } else {
        LANE_LOOP d[i] = results[word][i];
      }
    }
  }
  static void run(Warp& warp, const MatrixSlots& slots) {
    Matrices tile;
    read_factors(warp, slots, tile);
    read_sums(warp, slots, tile);
    tile.template multiply<Order>();
    write_sums(warp, slots, tile);
  }
  static void list(const MatrixSink& sink, const char* name) {
    sink.add(sink.context, name, kWords, run);
  }
};

// --- the table -----------------------------------------------------------------------------------

template <class A, class B>
inline void list_byte_products(const MatrixSink& sink, const char* const (&names)[12]) {
  Mma<A, B, std::int32_t, 8, 16>::list(sink, names[0]);
  Mma<A, B, std::int32_t, 16, 16>::list(sink, names[1]);
  Mma<A, B, std::int32_t, 16, 32>::list(sink, names[2]);
  Mma<A, B, std::int32_t, 8, 16, true>::list(sink, names[3]);
  Mma<A, B, std::int32_t, 16, 16, true>::list(sink, names[4]);
  Mma<A, B, std::int32_t, 16, 32, true>::list(sink, names[5]);
  if constexpr (std::is_same_v<A, B>) {
    Wmma<A, B, std::int32_t, std::int32_t, 16, 16>::list(sink, names[6]);
    Wmma<A, B, std::int32_t, std::int32_t, 8, 32>::list(sink, names[7]);
    Wmma<A, B, std::int32_t, std::int32_t, 32, 8>::list(sink, names[8]);
    Wmma<A, B, std::int32_t, std::int32_t, 16, 16, true>::list(sink, names[9]);
    Wmma<A, B, std::int32_t, std::int32_t, 8, 32, true>::list(sink, names[10]);
    Wmma<A, B, std::int32_t, std::int32_t, 32, 8, true>::list(sink, names[11]);
  }
}
#define KANSOKU_BYTE_PRODUCTS(A, a, B, b)                                                          \
  list_byte_products<A, B>(                                                                        \
      sink,                                                                                        \
      {"mma.m8n8k16.s32." a "." b ".s32", "mma.m16n8k16.s32." a "." b ".s32",                      \
       "mma.m16n8k32.s32." a "." b ".s32", "mma.m8n8k16.satfinite.s32." a "." b ".s32",            \
       "mma.m16n8k16.satfinite.s32." a "." b ".s32", "mma.m16n8k32.satfinite.s32." a "." b ".s32", \
       "wmma.m16n16k16.s32." a "." b ".s32", "wmma.m8n32k16.s32." a "." b ".s32",                  \
       "wmma.m32n8k16.s32." a "." b ".s32", "wmma.m16n16k16.s32." a "." b ".s32.satfinite",        \
       "wmma.m8n32k16.s32." a "." b ".s32.satfinite",                                              \
       "wmma.m32n8k16.s32." a "." b ".s32.satfinite"})

template <class C, class D>
inline void list_half_wmma(const MatrixSink& sink, const char* const (&names)[3]) {
  Wmma<Half, Half, C, D, 16, 16>::list(sink, names[0]);
  Wmma<Half, Half, C, D, 8, 32>::list(sink, names[1]);
  Wmma<Half, Half, C, D, 32, 8>::list(sink, names[2]);
}

inline void list_products(const MatrixSink& sink) {
  Mma<Half, Half, float, 16, 8>::list(sink, "mma.m16n8k8.f32.f16.f16.f32");
  Mma<Half, Half, float, 16, 16>::list(sink, "mma.m16n8k16.f32.f16.f16.f32");
  Mma<Half, Half, Half, 16, 8>::list(sink, "mma.m16n8k8.f16.f16.f16.f16");
  Mma<Half, Half, Half, 16, 16>::list(sink, "mma.m16n8k16.f16.f16.f16.f16");
  Mma<BFloat, BFloat, float, 16, 8>::list(sink, "mma.m16n8k8.f32.bf16.bf16.f32");
  Mma<BFloat, BFloat, float, 16, 16>::list(sink, "mma.m16n8k16.f32.bf16.bf16.f32");
  Mma<Tf32, Tf32, float, 16, 4>::list(sink, "mma.m16n8k4.f32.tf32.tf32.f32");
  Mma<Tf32, Tf32, float, 16, 8>::list(sink, "mma.m16n8k8.f32.tf32.tf32.f32");
  KANSOKU_BYTE_PRODUCTS(std::int8_t, "s8", std::int8_t, "s8");
  KANSOKU_BYTE_PRODUCTS(std::uint8_t, "u8", std::uint8_t, "u8");
  KANSOKU_BYTE_PRODUCTS(std::int8_t, "s8", std::uint8_t, "u8");
  KANSOKU_BYTE_PRODUCTS(std::uint8_t, "u8", std::int8_t, "s8");
  list_half_wmma<float, float>(
      sink, {"wmma.m16n16k16.f32.f32", "wmma.m8n32k16.f32.f32", "wmma.m32n8k16.f32.f32"});
  list_half_wmma<Half, Half>(
      sink, {"wmma.m16n16k16.f16.f16", "wmma.m8n32k16.f16.f16", "wmma.m32n8k16.f16.f16"});
  list_half_wmma<Half, float>(
      sink, {"wmma.m16n16k16.f32.f16", "wmma.m8n32k16.f32.f16", "wmma.m32n8k16.f32.f16"});
  list_half_wmma<float, Half>(
      sink, {"wmma.m16n16k16.f16.f32", "wmma.m8n32k16.f16.f32", "wmma.m32n8k16.f16.f32"});
  Wmma<BFloat, BFloat, float, float, 16, 16>::list(sink, "wmma.m16n16k16.f32.bf16.bf16.f32");
  Wmma<BFloat, BFloat, float, float, 8, 32>::list(sink, "wmma.m8n32k16.f32.bf16.bf16.f32");
  Wmma<BFloat, BFloat, float, float, 32, 8>::list(sink, "wmma.m32n8k16.f32.bf16.bf16.f32");
}

}  // namespace
}  // namespace kansoku::gpu::exec
