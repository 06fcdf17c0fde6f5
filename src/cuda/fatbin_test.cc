// SPDX-License-Identifier: Apache-2.0
#include "cuda/fatbin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kansoku::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string long_text() {
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
  for (int i = 0; i < 200; ++i)
    text += "// line " + std::to_string(i) + "\n";
  return text;
}

class FatbinTest : public ::testing::TestWithParam<Compression> {};

TEST_P(FatbinTest, WhatIsWrittenIsRead) {
  const std::string low = long_text(), high = long_text() + "// sm_90\n";
  const auto bytes = write_fatbin({{low, 70}, {high, 90}}, GetParam());
  ASSERT_TRUE(bytes);
  const auto entries = read_fatbin(as_bytes(*bytes));
  ASSERT_TRUE(entries) << entries.error().what;
  ASSERT_THAT(*entries, SizeIs(2));
  EXPECT_EQ((*entries)[0].compression, GetParam());
  EXPECT_EQ((*entries)[1].architecture, 90U);
  EXPECT_EQ(unpack((*entries)[1]).value(), high);
  EXPECT_EQ(best_ptx(*entries, 80).value(), low);
  EXPECT_EQ(best_ptx(*entries, 90).value(), high);
  EXPECT_EQ(best_ptx(*entries, 60).error().code, Code::kNotFound);
  EXPECT_EQ(fatbin_bytes(as_bytes(*bytes).first(16)).value(), bytes->size());
}

TEST_P(FatbinTest, ContainersFollowEachOther) {
  const std::string text = long_text();
  const std::string one = write_fatbin({{text, 80}}, GetParam()).value();
  const std::string both = one + std::string(8, '\0') + one;
  const auto entries = read_fatbin(as_bytes(both));
  ASSERT_TRUE(entries);
  EXPECT_THAT(*entries, SizeIs(2));
  const auto containers = fatbin_containers(as_bytes(both));
  ASSERT_TRUE(containers);
  ASSERT_THAT(*containers, SizeIs(2));
  for (const ByteSpan container : *containers)
    EXPECT_EQ(as_text(container), one);
}

TEST_P(FatbinTest, EveryCutAndEveryChangedByteIsSurvived) {
  const std::string bytes = write_fatbin({{long_text(), 80}}, GetParam()).value();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(read_fatbin(as_bytes(bytes).first(cut)));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(~changed[i]);
    const auto entries = read_fatbin(as_bytes(changed));
    if (!entries) continue;
    for (const FatbinEntry& entry : *entries)
      static_cast<void>(unpack(entry));
  }
}

INSTANTIATE_TEST_SUITE_P(AllCompressions, FatbinTest,
                         ::testing::Values(Compression::kNone, Compression::kLz4,
                                           Compression::kZstd),
                         [](const auto& parameter) {
                           return std::string(compression_name(parameter.param));
                         });

TEST(FatbinErrorsTest, SayWhatIsWrong) {
  EXPECT_THAT(read_fatbin(as_bytes("no fatbin at all, but long")).error().what,
              HasSubstr("not a container"));
  EXPECT_THAT(read_fatbin({}).error().what, HasSubstr("no header"));
  std::string bytes = write_fatbin({{long_text(), 80}}, Compression::kZstd).value();
  bytes[16 + 56] = 1;  // another uncompressed size
  const auto entries = read_fatbin(as_bytes(bytes)).value();
  EXPECT_THAT(unpack(entries[0]).error().what, HasSubstr("does not decompress (zstd)"));
}

}  // namespace
}  // namespace kansoku::cuda
