// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/reduction.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "softcuda/nccl/internal/half.h"

namespace kansoku::softcuda::nccl {
namespace {

/// Value of a 16-bit float of `mantissa_bits`, from its definition.
double meaning(std::uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

/// The neighbours of every finite value, the middles between them and what lies beside those must
/// round to the nearest, ties to the even one.
void check_rounding(int mantissa_bits, std::uint16_t (*narrow)(float),
                    float (*widen)(std::uint16_t)) {
  const std::uint16_t infinity =
      static_cast<std::uint16_t>(((1 << (15 - mantissa_bits)) - 1) << mantissa_bits);
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const double at = meaning(low, mantissa_bits);
    ASSERT_EQ(widen(low), at) << bits;
    ASSERT_EQ(narrow(widen(low)), low) << bits;
    // Beyond the last value lies the one that would come next, which counts as infinity.
    const double next =
        high == infinity ? std::ldexp(2, std::ilogb(at)) : meaning(high, mantissa_bits);
    const auto middle = static_cast<float>((at + next) / 2);
    if (middle != (at + next) / 2) continue;  // bfloat16 subnormals: floats have no middle either
    ASSERT_EQ(narrow(middle), (low & 1) == 0 ? low : high) << bits;
    ASSERT_EQ(narrow(-middle), 0x8000 | ((low & 1) == 0 ? low : high)) << bits;
    ASSERT_EQ(narrow(std::nextafterf(middle, 0)), low) << bits;
    ASSERT_EQ(narrow(std::nextafterf(middle, INFINITY)), high) << bits;
  }
  EXPECT_EQ(narrow(INFINITY), infinity);
  EXPECT_EQ(narrow(-std::numeric_limits<float>::max()), 0x8000 | infinity);
  EXPECT_EQ(narrow(std::numeric_limits<float>::quiet_NaN()), 0x7fff);
  EXPECT_EQ(narrow(-std::numeric_limits<float>::quiet_NaN()), 0x7fff);
  EXPECT_EQ(widen(infinity), INFINITY);
  EXPECT_TRUE(std::isnan(widen(static_cast<std::uint16_t>(infinity + 1))));
}

TEST(Half, RoundsToNearest) {
  check_rounding(10, half_from_float, float_from_half);
}

TEST(Bfloat, RoundsToNearest) {
  check_rounding(7, bfloat_from_float, float_from_bfloat);
}

/// The arrays combined in order, as bytes of T.
template <class T>
std::vector<T> reduced(ncclDataType_t type, ncclRedOp_t op,
                       const std::vector<std::vector<T>>& arrays) {
  const Reduction reduction(type, op, static_cast<int>(arrays.size()));
  const std::size_t count = arrays[0].size();
  std::vector<std::byte> wide(count * reduction.wide_bytes());
  reduction.load(wide.data(), reinterpret_cast<const std::byte*>(arrays[0].data()), count);
  for (std::size_t i = 1; i < arrays.size(); ++i)
    reduction.combine(wide.data(), reinterpret_cast<const std::byte*>(arrays[i].data()), count);
  std::vector<T> to(count);
  reduction.store(reinterpret_cast<std::byte*>(to.data()), wide.data(), count);
  return to;
}

TEST(Reduction, IntegersWrapRound) {
  using Bytes = std::vector<std::int8_t>;
  EXPECT_EQ(reduced<std::int8_t>(ncclInt8, ncclSum, {{100, -100}, {100, -100}}), (Bytes{-56, 56}));
  EXPECT_EQ(reduced<std::int8_t>(ncclInt8, ncclProd, {{100, -128}, {3, -1}}), (Bytes{44, -128}));
  const auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reduced<std::int64_t>(ncclInt64, ncclSum, {{most}, {1}})[0],
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reduced<std::int64_t>(ncclInt64, ncclProd, {{most}, {most}})[0], 1);
  EXPECT_EQ(reduced<std::uint32_t>(ncclUint32, ncclSum, {{4'000'000'000}, {4'000'000'000}})[0],
            3'705'032'704U);
}

TEST(Reduction, MinAndMaxKnowSigns) {
  EXPECT_EQ(reduced<std::int8_t>(ncclInt8, ncclMax, {{-1}, {1}})[0], 1);
  EXPECT_EQ(reduced<std::uint8_t>(ncclUint8, ncclMax, {{255}, {1}})[0], 255);
  EXPECT_EQ(reduced<std::int64_t>(ncclInt64, ncclMin, {{-1}, {1}})[0], -1);
  EXPECT_EQ(reduced<std::uint64_t>(ncclUint64, ncclMin, {{UINT64_MAX}, {1}})[0], 1U);
}

TEST(Reduction, AverageOfIntegersGoesTowardsZero) {
  EXPECT_EQ(reduced<std::int32_t>(ncclInt32, ncclAvg, {{7, -7}, {0, 0}}),
            (std::vector<std::int32_t>{3, -3}));
  EXPECT_EQ(reduced<std::uint64_t>(ncclUint64, ncclAvg, {{UINT64_MAX}, {0}})[0], UINT64_MAX / 2);
  // 256 does not fit into an int8, and the sum wraps round before it is divided.
  const std::vector<std::vector<std::int8_t>> many(256, std::vector<std::int8_t>{1});
  EXPECT_EQ(reduced<std::int8_t>(ncclInt8, ncclAvg, many)[0], 0);
}

TEST(Reduction, SixteenBitFloatsAreRoundedOnce) {
  const std::uint16_t one = half_from_float(1), tiny = half_from_float(0x1p-11F);
  // Each sum alone would round back to 1.
  EXPECT_EQ(reduced<std::uint16_t>(ncclFloat16, ncclSum, {{one}, {tiny}, {tiny}})[0],
            half_from_float(1 + 0x1p-10F));
  const std::uint16_t big = half_from_float(60000);
  EXPECT_EQ(
      reduced<std::uint16_t>(ncclFloat16, ncclSum, {{big}, {big}, {half_from_float(-60000)}})[0],
      big);
  EXPECT_EQ(reduced<std::uint16_t>(ncclFloat16, ncclAvg, {{big}, {big}})[0], big);
  EXPECT_EQ(
      reduced<std::uint16_t>(
          ncclBfloat16, ncclSum,
          {{bfloat_from_float(1)}, {bfloat_from_float(0x1p-8F)}, {bfloat_from_float(0x1p-8F)}})[0],
      bfloat_from_float(1 + 0x1p-7F));
}

TEST(Reduction, FloatsAreAddedInOrder) {
  // (1e8 + 1) - 1e8 = 0 in floats, 1e8 - 1e8 + 1 = 1.
  EXPECT_EQ(reduced<float>(ncclFloat32, ncclSum, {{1e8F}, {1}, {-1e8F}})[0], 0);
  EXPECT_EQ(reduced<float>(ncclFloat32, ncclSum, {{1e8F}, {-1e8F}, {1}})[0], 1);
  EXPECT_EQ(reduced<float>(ncclFloat32, ncclAvg, {{1}, {1}, {0}})[0], 2.0F / 3.0F);
  EXPECT_EQ(reduced<double>(ncclFloat64, ncclProd, {{0.1}, {0.2}, {0.3}})[0], 0.1 * 0.2 * 0.3);
}

TEST(Reduction, OneNanComesOut) {
  const float quiet = std::bit_cast<float>(0xffc12345U);
  for (const auto& arrays : {std::vector<std::vector<float>>{{quiet}, {1}}, {{1}, {quiet}}}) {
    const float sum = reduced<float>(ncclFloat32, ncclSum, arrays)[0];
    EXPECT_EQ(std::bit_cast<std::uint32_t>(sum), 0x7fffffffU);
    EXPECT_EQ(reduced<float>(ncclFloat32, ncclMax, arrays)[0], 1);
    EXPECT_EQ(reduced<float>(ncclFloat32, ncclMin, arrays)[0], 1);
  }
  EXPECT_EQ(reduced<std::uint16_t>(ncclFloat16, ncclSum, {{0xfe01}, {0}})[0], 0x7fff);
  EXPECT_EQ(reduced<std::uint16_t>(ncclBfloat16, ncclMax, {{0xffc1}, {0xffc2}})[0], 0x7fff);
}

TEST(Reduction, NeedsNoAlignment) {
  std::array<std::byte, 64> from{}, wide{}, to{};
  const double value = 2.5;
  std::memcpy(from.data() + 1, &value, sizeof(value));
  const Reduction reduction(ncclFloat64, ncclSum, 2);
  reduction.load(wide.data() + 3, from.data() + 1, 1);
  reduction.combine(wide.data() + 3, from.data() + 1, 1);
  reduction.store(to.data() + 5, wide.data() + 3, 1);
  double sum = 0;
  std::memcpy(&sum, to.data() + 5, sizeof(sum));
  EXPECT_EQ(sum, 5);
}

TEST(Reduction, KnowsTheInterfacesNumbers) {
  EXPECT_FALSE(is_known(static_cast<ncclDataType_t>(-1)));
  EXPECT_FALSE(is_known(static_cast<ncclDataType_t>(kDataTypeCount)));
  EXPECT_FALSE(is_known(static_cast<ncclRedOp_t>(kRedOpCount)));
  EXPECT_EQ(name_of(ncclBfloat16), "bfloat16");
  EXPECT_EQ(bytes_of(ncclFloat16), 2U);
}

}  // namespace
}  // namespace kansoku::softcuda::nccl
