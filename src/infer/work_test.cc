// SPDX-License-Identifier: Apache-2.0
#include "infer/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kansoku::infer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

trace::TensorShape shape(std::string_view text) {
  return trace::parse_shape(text).value();
}
Node worked(std::string op, std::string_view result, const std::vector<std::string_view>& sources) {
  Node out;
  out.op = std::move(op);
  out.shape = shape(result);
  for (const std::string_view source : sources)
    out.sources.push_back({shape(source)});
  estimate_work(out);
  return out;
}

TEST(Work, OfAProductIsTwoForEachOfKByMByN) {
  // 4 x 6 weights by 4 x 3: K = 4, M = 6, N = 3.
  const Node node = worked("MUL_MAT", "F32 6x3x1x1 72", {"F16 4x6x1x1 48", "F32 4x3x1x1 48"});
  EXPECT_DOUBLE_EQ(node.flops, 2 * 4 * 6 * 3);
  EXPECT_DOUBLE_EQ(node.bytes, 72 + 48 + 48);
  // Product of several heads.
  EXPECT_DOUBLE_EQ(
      worked("MUL_MAT", "F32 6x3x5x1 360", {"F16 4x6x5x1 240", "F32 4x3x5x1 240"}).flops,
      2 * 4 * 6 * 3 * 5);
}

TEST(Work, OfExpertsReadsOnlyThoseThatCanBeUsed) {
  // 8 experts of 4 x 6, two for each of 3 tokens: 6 at most.
  const std::string_view weights = "F16 4x6x8x1 384", input = "F32 4x1x3x1 48",
                         result = "F32 6x2x3x1 144";
  Node node = worked("MUL_MAT_ID", result, {weights, input, "I32 2x3x1x1 24"});
  EXPECT_DOUBLE_EQ(node.flops, 2 * 4 * 6 * 2 * 3);
  EXPECT_DOUBLE_EQ(node.bytes, 384.0 * 6 / 8 + 48 + 144);
  node = worked("MUL_MAT_ID", result, {weights, input, "I32 2x30x1x1 240"});
  EXPECT_DOUBLE_EQ(node.bytes, 384 + 48 + 144) << "no more than there are";
}

TEST(Work, OfAttentionIsTwoForEachPairAndLength) {
  // 3 tokens and 5 cells of 2 heads; queries of 4, values of 6.
  const Node node =
      worked("FLASH_ATTN_EXT", "F32 6x2x3x1 144",
             {"F32 4x3x2x1 96", "F16 4x5x2x1 80", "F16 6x5x2x1 120", "F16 5x3x1x1 30"});
  EXPECT_DOUBLE_EQ(node.flops, 2.0 * (3 * 2) * 5 * (4 + 6));
  EXPECT_DOUBLE_EQ(node.bytes, 144 + 96 + 80 + 120 + 30);
}

TEST(Work, OfRowsIsTheRowsAlone) {
  // 3 of 1000 rows of 4.
  const Node node = worked("GET_ROWS", "F32 4x3x1x1 48", {"F16 4x1000x1x1 8000", "I32 3x1x1x1 12"});
  EXPECT_DOUBLE_EQ(node.flops, 0);
  EXPECT_DOUBLE_EQ(node.bytes, 8000.0 * 3 / 1000 + 12 + 48);
  const Node all = worked("GET_ROWS", "F32 4x9x1x1 144", {"F16 4x2x1x1 16", "I32 9x1x1x1 36"});
  EXPECT_DOUBLE_EQ(all.bytes, 16 + 36 + 144) << "a row that is read twice is there once";
}

TEST(Work, OfSettingRowsIsTheRowsAlone) {
  // 2 rows of 4 into a cache of 100.
  const Node node = worked("SET_ROWS", "F16 4x100x1x1 800",
                           {"F32 4x2x1x1 32", "I64 2x1x1x1 16", "F16 4x100x1x1 800"});
  EXPECT_DOUBLE_EQ(node.flops, 0);
  EXPECT_DOUBLE_EQ(node.bytes, 32 + 16 + 800.0 * 2 / 100);
  const Node none = worked("SET_ROWS", "F16 0x0x1x1 0", {"F32 4x2x1x1 32", "I64 2x1x1x1 16"});
  EXPECT_DOUBLE_EQ(none.bytes, 48);
}

TEST(Work, OfOthersIsOneForEachElement) {
  const Node node = worked("ADD", "F32 4x3x1x1 48", {"F32 4x3x1x1 48", "F32 4x1x1x1 16"});
  EXPECT_DOUBLE_EQ(node.flops, 12);
  EXPECT_DOUBLE_EQ(node.bytes, 48 + 48 + 16);
}

TEST(Work, OfWhatLacksSourcesIsThatOfOthers) {
  for (const char* op : {"MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT", "GET_ROWS", "SET_ROWS"}) {
    const Node node = worked(op, "F32 4x3x1x1 48", {"F32 4x3x1x1 48"});
    EXPECT_DOUBLE_EQ(node.flops, 12) << op;
    EXPECT_DOUBLE_EQ(node.bytes, 96) << op;
  }
}

TEST(Work, OfViewsIsNone) {
  Node node = worked("ADD", "F32 4x3x1x1 48", {});
  node.is_view = true;
  estimate_work(node);
  EXPECT_DOUBLE_EQ(node.flops, 0);
  EXPECT_DOUBLE_EQ(node.bytes, 0);
}

TEST(ExpertsUsed, AreRead) {
  const auto used = parse_experts("2x3 3 7 0 1 5 5");
  ASSERT_TRUE(used);
  EXPECT_EQ(used->used, 2U);
  EXPECT_EQ(used->tokens, 3U);
  EXPECT_THAT(used->ids, ElementsAre(3, 7, 0, 1, 5, 5));
  EXPECT_THAT(parse_experts("2x0").value().ids, IsEmpty());
  EXPECT_EQ(parse_experts("2x3 1").value().ids.size(), 1U) << "it was cut";
}

TEST(ExpertsUsed, HaveALimit) {
  std::string text = "1x5000";
  for (int i = 0; i < 5000; ++i)
    text += " 1";
  EXPECT_EQ(parse_experts(text).value().ids.size(), 4096U);
}

TEST(ExpertsUsed, RefuseOtherTexts) {
  for (const std::string_view text :
       {"", "2", "2x", "x2", "0x3 1", "-1x1 1", "2x1 -1", "2x1 a", "2x1  1", "2x1 1 ,", "2x1x1 1",
        "4294967296x1 1", "1x1 4294967296"})
    EXPECT_FALSE(parse_experts(text)) << text;
}

}  // namespace
}  // namespace kansoku::infer
