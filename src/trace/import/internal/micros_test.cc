// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/micros.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/rng.h"

namespace kansoku::trace::import {
namespace {

// Three decimals are nanoseconds; what follows is cut, never rounded.
TEST(Micros, ReadsDecimalsExactly) {
  EXPECT_EQ(nanos_of_micros("0"), 0);
  EXPECT_EQ(nanos_of_micros("1"), 1000);
  EXPECT_EQ(nanos_of_micros("1.5"), 1500);
  EXPECT_EQ(nanos_of_micros("1.05"), 1050);
  EXPECT_EQ(nanos_of_micros("1.005"), 1005);
  EXPECT_EQ(nanos_of_micros("1.0059999999"), 1005);
  EXPECT_EQ(nanos_of_micros("0.001"), 1);
  EXPECT_EQ(nanos_of_micros("0.0009"), 0);
  EXPECT_EQ(nanos_of_micros("-1.5"), -1500);
  EXPECT_EQ(nanos_of_micros("-0.25"), -250);  // the whole part alone has no sign
  EXPECT_EQ(nanos_of_micros("-0.001"), -1);
}

// 1720000000123456.789 us needs 61 bits of nanoseconds; a double has 53.
TEST(Micros, KeepsDigitsThatADoubleLoses) {
  EXPECT_EQ(nanos_of_micros("1720000000123456.789"), 1720000000123456789);
  EXPECT_EQ(nanos_of_micros("1720000000123456.788"), 1720000000123456788);
  EXPECT_EQ(nanos_of_micros("-1720000000123456.789"), -1720000000123456789);
}

TEST(Micros, EveryNanosecondComesBack) {
  Rng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto nanos = static_cast<std::int64_t>(rng.below(std::uint64_t{1} << 61));
    const std::string text = fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
    ASSERT_EQ(nanos_of_micros(text), nanos) << text;
    ASSERT_EQ(nanos_of_micros("-" + text), -nanos) << text;
  }
}

TEST(Micros, ReadsExponents) {
  EXPECT_EQ(nanos_of_micros("1e3"), 1'000'000);
  EXPECT_EQ(nanos_of_micros("2.5E2"), 250'000);
  EXPECT_EQ(nanos_of_micros("-5e-1"), -500);
  EXPECT_EQ(nanos_of_micros("1e-9"), 0);
}

// 2^61 ns = 2305843009213693.952 us.
TEST(Micros, StopsAtTheLimit) {
  constexpr std::int64_t kMax = std::int64_t{1} << 61;
  EXPECT_EQ(nanos_of_micros("2305843009213693.951"), kMax - 1);
  EXPECT_EQ(nanos_of_micros("2305843009213693.952"), kMax);
  EXPECT_EQ(nanos_of_micros("2305843009213693.953"), std::nullopt);
  EXPECT_EQ(nanos_of_micros("-2305843009213693.952"), -kMax);
  EXPECT_EQ(nanos_of_micros("-2305843009213693.953"), std::nullopt);
  for (const char* text : {"2305843009213695", "9223372036854775807", "9223372036854775808",
                           "99999999999999999999999999", "1e300", "-1e300"})
    EXPECT_EQ(nanos_of_micros(text), std::nullopt) << text;
}

TEST(Micros, RefusesNonsense) {
  for (const char* text : {"", "-", ".", "-.", "e", "1e", "abc", "1a", "1.5x", "1.5.5", "1 ", " 1",
                           "+1", "--1", "0x10", "nan", "inf", "-inf", "1,5"})
    EXPECT_EQ(nanos_of_micros(text), std::nullopt) << text;
}

}  // namespace
}  // namespace kansoku::trace::import
