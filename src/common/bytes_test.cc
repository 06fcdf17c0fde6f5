// SPDX-License-Identifier: Apache-2.0
#include "common/bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace kansoku {
namespace {

TEST(Bytes, AreTextAndBack) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(as_bytes(text).size(), 3U);
  EXPECT_EQ(as_text(as_bytes(text)), text);
  EXPECT_EQ(as_text(as_bytes("")), "");
}

TEST(MemorySink, IsFullAtItsLimit) {
  for (const std::size_t limit : {2U, 3U, 4U}) {
    MemorySink sink(limit);
    const auto appended = sink.append(as_bytes("abc"));
    EXPECT_EQ(appended.has_value(), limit >= 3);
    EXPECT_EQ(sink.data(), limit >= 3 ? "abc" : "");  // all or nothing
  }
  MemorySink sink(3);
  ASSERT_TRUE(sink.append(as_bytes("abc")));
  EXPECT_TRUE(sink.append({}));
  const auto refused = sink.append(as_bytes("d"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kLimit);
  EXPECT_EQ(sink.data(), "abc");
}

TEST(ByteReader, ReadsLittleEndianNumbersAndSpans) {
  const std::string bytes("\x01\x02\x03\x04\xff tail", 10);
  ByteReader reader(as_bytes(bytes));
  EXPECT_EQ(reader.remaining(), 10U);
  EXPECT_EQ(reader.read<std::uint16_t>("a").value(), 0x0201);
  EXPECT_EQ(reader.offset(), 2U);
  EXPECT_EQ(reader.read<std::uint16_t>("b").value(), 0x0403);
  EXPECT_EQ(reader.read<std::int8_t>("c").value(), -1);
  EXPECT_EQ(as_text(reader.take(5, "d").value()), " tail");
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_EQ(reader.offset(), 10U);
  EXPECT_TRUE(reader.take(0, "nothing"));
}

TEST(ByteReader, RefusesToReadBeyondTheEndAndStaysWhereItIs) {
  ByteReader reader(as_bytes("abcdefg"));
  static_cast<void>(reader.take(2, "begin"));
  const auto number = reader.read<std::uint64_t>("section size");
  ASSERT_FALSE(number);
  EXPECT_EQ(number.error().code, Code::kCorrupt);
  EXPECT_EQ(number.error().what, "read section size at offset 2: 8 bytes wanted, 5 left");
  EXPECT_FALSE(reader.take(std::numeric_limits<std::size_t>::max(), "all"));
  EXPECT_FALSE(reader.take(6, "one too many"));
  EXPECT_EQ(reader.offset(), 2U);
  EXPECT_EQ(as_text(reader.take(5, "rest").value()), "cdefg");
}

}  // namespace
}  // namespace kansoku
