// SPDX-License-Identifier: Apache-2.0
#include "common/varint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace kansoku {
namespace {

std::optional<std::uint64_t> read(const std::string& text) {
  ByteSpan rest = as_bytes(text);
  return take_varint(rest);
}

TEST(Varint, ComesBackAtEveryLength) {
  std::string text;
  for (unsigned bits = 0; bits < 64; ++bits)
    for (const std::uint64_t off : {0U, 1U})
      append_varint(text, (std::uint64_t{1} << bits) - off);
  append_varint(text, std::numeric_limits<std::uint64_t>::max());
  ByteSpan rest = as_bytes(text);
  for (unsigned bits = 0; bits < 64; ++bits)
    for (const std::uint64_t off : {0U, 1U})
      EXPECT_EQ(take_varint(rest), (std::uint64_t{1} << bits) - off) << bits;
  EXPECT_EQ(take_varint(rest), std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(rest.empty());
}

TEST(Varint, RefusesWhatNobodyWrites) {
  EXPECT_EQ(read(""), std::nullopt);
  EXPECT_EQ(read("\x80"), std::nullopt);                                          // ends early
  EXPECT_EQ(read(std::string("\x80\x00", 2)), std::nullopt);                      // 0 in two bytes
  EXPECT_EQ(read("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), std::nullopt);      // 65 bits
  EXPECT_EQ(read("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), std::nullopt);  // 11 bytes
}

TEST(Varint, ZigzagKeepsSmallNumbersSmall) {
  for (const std::int64_t value :
       {std::numeric_limits<std::int64_t>::min(), std::int64_t{-2}, std::int64_t{-1},
        std::int64_t{0}, std::int64_t{1}, std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(from_zigzag(to_zigzag(value)), value);
  EXPECT_EQ(to_zigzag(-1), 1U);
  EXPECT_EQ(to_zigzag(1), 2U);
}

TEST(Varint, MayBePaddedWhereOthersWriteIt) {
  const std::string padded("\x85\x80\x00", 3);
  ByteSpan rest = as_bytes(padded);
  EXPECT_EQ(take_varint(rest), std::nullopt);
  rest = as_bytes(padded);
  EXPECT_EQ(take_varint(rest, VarintForm::kAny), 5U);
  EXPECT_TRUE(rest.empty());
}

}  // namespace
}  // namespace kansoku
