// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "capture/llm/graph_for_test.h"

namespace kansoku::capture::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kPicturedGraph = 0x9000;

class PictureTest : public testing::Test {
 protected:
  void node(const TensorForTest& tensor, std::uint32_t index,
            std::uint64_t graph = kPicturedGraph) {
    maker_.add(record_for_test(tensor, layout_for_test(), graph, index));
  }
  void leaf(const TensorForTest& tensor, std::uint32_t index,
            std::uint64_t graph = kPicturedGraph) {
    maker_.add(record_for_test(tensor, layout_for_test(), graph, index, true));
  }
  [[nodiscard]] auto take(std::int32_t count) {
    return maker_.take(count, layout_for_test(), names_for_test());
  }
  /// norm, a product of it, and their sum.
  void add_small(std::int64_t tokens, std::uint64_t base = 0x1000) {
    const TensorForTest input{base + 1, "inp", kNone, {8, tokens, 1, 1}};
    const TensorForTest weights{base + 2, "blk.0.w", kNone, {8, 8, 1, 1}, {}, kF16};
    node({base + 3, "norm-0", kNorm, {8, tokens, 1, 1}, {base + 1}}, 0);
    leaf(input, 0);
    node({base + 4, "out-0", kMulMat, {8, tokens, 1, 1}, {base + 2, base + 3}}, 1);
    leaf(weights, 1);
    node({base + 5, "sum-0", kAdd, {8, tokens, 1, 1}, {base + 4, base + 1}}, 2);
    leaf(input, 2);
  }
  PictureMaker maker_;
};

TEST_F(PictureTest, NamesNodesAndWhereTheyReadFrom) {
  add_small(3);
  EXPECT_EQ(maker_.count(kPicturedGraph), 6U);
  EXPECT_EQ(maker_.count(kPicturedGraph + 1), 0U);
  const auto made = take(3);
  ASSERT_TRUE(made) << made.error().what;
  const Picture& picture = **made;
  ASSERT_EQ(picture.nodes.size(), 3U);
  EXPECT_EQ(picture.nodes[0].op, "RMS_NORM");
  EXPECT_EQ(picture.nodes[0].name, "norm-0");
  EXPECT_EQ(picture.nodes[0].shape, "F32 8x3x1x1 96");
  EXPECT_THAT(picture.nodes[0].sources, ElementsAre("F32 8x3x1x1 96 =inp"));
  EXPECT_THAT(picture.nodes[1].sources,
              ElementsAre("F16 8x8x1x1 128 =blk.0.w", "F32 8x3x1x1 96 #0"));
  EXPECT_THAT(picture.nodes[2].sources, ElementsAre("F32 8x3x1x1 96 #1", "F32 8x3x1x1 96 =inp"));
  EXPECT_EQ(picture.by_address.at(0x1004), 1U);
  EXPECT_EQ(picture.by_address.size(), 3U);
  EXPECT_EQ(maker_.count(kPicturedGraph), 0U) << "it begins anew";
}

TEST_F(PictureTest, OfEqualNodesIsEqualWhereverTheyLie) {
  const auto content = [&](std::int64_t tokens, std::uint64_t base) {
    add_small(tokens, base);
    return take(3).value()->content;
  };
  EXPECT_EQ(content(1, 0x1000), content(1, 0x7000));
  EXPECT_NE(content(1, 0x1000), content(2, 0x1000));
}

TEST_F(PictureTest, DiffersByEveryWord) {
  const TensorForTest base{1, "n", kAdd, {2, 1, 1, 1}, {7}};
  const auto content = [&](const TensorForTest& tensor, std::string_view leaf_name) {
    node(tensor, 0);
    leaf({7, leaf_name, kNone, {2, 1, 1, 1}}, 0);
    return take(1).value()->content;
  };
  TensorForTest variant = base, op = base, name = base, shape = base, sources = base;
  variant.variant = 1;
  op.op = kMul;
  name.name = "m";
  shape.ne = {1, 2, 1, 1};
  sources.src = {7, 7};
  std::set<std::uint64_t> all{content(base, "x"), content(base, "y")};
  for (const TensorForTest& one : {variant, op, name, shape, sources})
    all.insert(content(one, "x"));
  EXPECT_EQ(all.size(), 7U);
}

TEST_F(PictureTest, OfANewGraphDropsWhatCameOfAnother) {
  node({1, "a", kAdd}, 0);
  node({2, "b", kAdd}, 1);
  node({1, "c", kAdd}, 0);  // again from the start: part of the first one was lost
  EXPECT_EQ(maker_.count(kPicturedGraph), 1U);
  node({5, "d", kAdd}, 1, kPicturedGraph + 8);
  EXPECT_EQ(maker_.count(kPicturedGraph), 0U);
  EXPECT_EQ(maker_.count(kPicturedGraph + 8), 1U);
}

TEST_F(PictureTest, NeedsAllNodes) {
  node({1, "a", kAdd}, 0);
  const auto fewer = take(2);
  ASSERT_FALSE(fewer);
  EXPECT_EQ(fewer.error().code, Code::kCorrupt);
  EXPECT_EQ(fewer.error().what, "read a graph: 1 of 2 nodes");
  EXPECT_EQ(take(1).error().what, "read a graph: 0 of 1 nodes");
  node({1, "a", kAdd}, 0);
  EXPECT_EQ(take(-1).error().what, "read a graph: 1 of -1 nodes");
  EXPECT_TRUE(take(0));
}

TEST_F(PictureTest, KeepsWhatASourceIsEvenIfItIsUnknown) {
  node({1, "a", kAdd, {2, 1, 1, 1}, {77, 1}}, 0);
  const auto made = take(1);
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_THAT((*made)->nodes[0].sources, ElementsAre("? 0x0x0x0 0 =?", "F32 2x1x1x1 8 #0"));
}

TEST_F(PictureTest, KeepsTheFirstSources) {
  node({1, "a", kAdd, {1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}}, 0);
  EXPECT_EQ(take(1).value()->nodes[0].sources.size(), kSourcesKept);
  node({1, "a", kAdd, {1, 1, 1, 1}, {1, 1, 0, 1}}, 0);
  EXPECT_EQ(take(1).value()->nodes[0].sources.size(), 2U);
}

TEST_F(PictureTest, KnowsViews) {
  node({1, "a", kView}, 0);
  node({2, "b", kAdd}, 1);
  const auto made = take(2).value();
}

TEST_F(PictureTest, OfAProductNeedsItsSizes) {
  const auto product = [&](std::array<std::int64_t, 4> weights, std::array<std::int64_t, 4> input,
                           std::array<std::int64_t, 4> result) {
    node({3, "qkv", kMulMat, result, {1, 2}}, 0);
    leaf({1, "w", kNone, weights}, 0);
    leaf({2, "x", kNone, input}, 0);
    const auto made = take(1);
    return made ? std::string("fits") : made.error().what;
  };
  const std::string misfit = "read a graph: qkv does not have the sizes of a product";
  EXPECT_EQ(product({4, 6, 1, 1}, {4, 3, 1, 1}, {6, 3, 1, 1}), "fits");
  EXPECT_EQ(product({4, 6, 1, 1}, {4, 3, 2, 1}, {6, 3, 2, 1}), "fits");
  EXPECT_EQ(product({5, 6, 1, 1}, {4, 3, 1, 1}, {6, 3, 1, 1}), misfit);
  EXPECT_EQ(product({4, 6, 1, 1}, {4, 3, 1, 1}, {5, 3, 1, 1}), misfit);
  EXPECT_EQ(product({4, 6, 1, 1}, {4, 3, 1, 1}, {6, 2, 1, 1}), misfit);
  // Unknown sources contradict nothing.
  node({3, "qkv", kMulMat, {6, 3, 1, 1}, {1, 2}}, 0);
  leaf({1, "w", kNone, {5, 5, 1, 1}}, 0);
  EXPECT_TRUE(take(1));
}

TEST_F(PictureTest, RefusesTensorsOfAnotherLayout) {
  // Some member was added before the sizes: all behind it lie eight bytes later.
  Layout shifted = layout_for_test();
  for (std::uint16_t Layout::Tensor::*member :
       {&Layout::Tensor::ne, &Layout::Tensor::nb, &Layout::Tensor::op, &Layout::Tensor::op_params,
        &Layout::Tensor::flags, &Layout::Tensor::src, &Layout::Tensor::view_src,
        &Layout::Tensor::data})
    shifted.tensor.*member = static_cast<std::uint16_t>(shifted.tensor.*member + 8);
  maker_.add(record_for_test({1, "a", kAdd, {8, 2, 1, 1}}, shifted, kPicturedGraph, 0));
  const auto made = take(1);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kCorrupt);
  EXPECT_THAT(made.error().what, HasSubstr("read a tensor: "));
}

TEST_F(PictureTest, RefusesATensorThatCouldNotBeRead) {
  wire_model_tensor record = record_for_test({1, "a", kAdd}, layout_for_test(), kPicturedGraph, 0);
  std::memset(record.bytes, 0, sizeof(record.bytes));
  record.flags = WIRE_MODEL_UNREADABLE;
  maker_.add(record);
  EXPECT_FALSE(take(1));
}

TEST_F(PictureTest, HoldsGraphsUpToALimit) {
  constexpr std::uint32_t kMost = WIRE_MODEL_NODES_MAX * (1 + WIRE_MODEL_SOURCES_MAX);
  const auto record = record_for_test({1, "a", kAdd}, layout_for_test(), kPicturedGraph, 1);
  for (std::uint32_t i = 0; i + 1 < kMost; ++i)
    maker_.add(record);
  EXPECT_EQ(maker_.count(kPicturedGraph), kMost - 1);
  maker_.add(record);
  EXPECT_EQ(maker_.count(kPicturedGraph), kMost);
  maker_.add(record);
  EXPECT_EQ(maker_.count(kPicturedGraph), kMost);
}

}  // namespace
}  // namespace kansoku::capture::llm
