// SPDX-License-Identifier: Apache-2.0
#include "trace/inference.h"

#include <gtest/gtest.h>

#include <limits>

namespace kansoku::trace {
namespace {

constexpr std::int64_t kSizeMax = std::int64_t{1} << 48;

TEST(Shape, IsTheSameAfterItsText) {
  const TensorShape shape{"Q4_0", {512, 354, 1, 1}, 101952};
  EXPECT_EQ(shape_text(shape), "Q4_0 512x354x1x1 101952");
  EXPECT_EQ(parse_shape(shape_text(shape)), shape);
  const TensorShape empty{"?", {0, 0, 0, 0}, 0};
  EXPECT_EQ(shape_text(empty), "? 0x0x0x0 0");
  EXPECT_EQ(parse_shape(shape_text(empty)), empty);
}

TEST(Shape, HasLimits) {
  const std::string longest(15, 'T');
  const auto with = [](const std::string& type, std::int64_t size, std::uint64_t bytes) {
    return shape_text({type, {1, 1, 1, size}, bytes});
  };
  EXPECT_TRUE(parse_shape(with(longest, kSizeMax - 1, kSizeMax - 1)));
  EXPECT_TRUE(parse_shape(with(longest, kSizeMax, kSizeMax)));
  EXPECT_FALSE(parse_shape(with(longest + "T", 1, 1)));
  EXPECT_FALSE(parse_shape(with("T", kSizeMax + 1, 1)));
  EXPECT_FALSE(parse_shape(with("T", 1, std::uint64_t{kSizeMax} + 1)));
  EXPECT_FALSE(parse_shape(with("T", -1, 1)));
  EXPECT_FALSE(parse_shape(with("T", std::numeric_limits<std::int64_t>::min(), 1)));
  EXPECT_FALSE(parse_shape(with("T", 1, std::numeric_limits<std::uint64_t>::max())));
}

TEST(Shape, RefusesOtherTexts) {
  for (const std::string_view text : {"",
                                      " ",
                                      "F32",
                                      "F32 ",
                                      "F32 1x1x1x1",
                                      "F32 1x1x1x1 ",
                                      " 1x1x1x1 4",
                                      "F32 1x1x1 4",
                                      "F32 1x1x1x1x1 4",
                                      "F32 1x1x1x1x 4",
                                      "F32 x1x1x1 4",
                                      "F32 1xx1x1 4",
                                      "F32 1x1x1x 4",
                                      "F32 1 1 1 1 4",
                                      "F32 1x1x1x1 4 ",
                                      "F32 1x1x1x1 -4",
                                      "F32 1x1x1x1 4.0",
                                      "F32  1x1x1x1 4",
                                      "F32 0x1x1x1x1 4",
                                      "F32 +1x1x1x1 4",
                                      "F32 1x1x1x1 #1",
                                      "F32 99999999999999999999x1x1x1 4"})
    EXPECT_FALSE(parse_shape(text)) << "\"" << text << "\"";
}

TEST(Source, IsTheSameAfterItsText) {
  const TensorSource of_node{{"F32", {512, 1, 1, 1}, 2048}, 12};
  EXPECT_EQ(source_text(of_node), "F32 512x1x1x1 2048 #12");
  EXPECT_EQ(parse_source(source_text(of_node)), of_node);
  const TensorSource first{{"F32", {512, 1, 1, 1}, 2048}, 0};
  EXPECT_EQ(parse_source(source_text(first)), first);
  for (const std::string name :
       {"blk.0.attn_q.weight", "", "two words", "=", "#7", "a =b #1", "\xd0\xb6"}) {
    const TensorSource leaf{{"F16", {512, 512, 1, 1}, 524288}, std::nullopt, name};
    EXPECT_EQ(source_text(leaf), "F16 512x512x1x1 524288 =" + name);
    EXPECT_EQ(parse_source(source_text(leaf)), leaf) << name;
  }
}

TEST(Source, RefusesOtherTexts) {
  for (const std::string_view text :
       {"", "F32 1x1x1x1 4", "F32 1x1x1x1 4 ", "F32 1x1x1x1 4 1", "F32 1x1x1x1 4 #",
        "F32 1x1x1x1 4 #-1", "F32 1x1x1x1 4 #4294967296", "F32 1x1x1x1 4 #1 ",
        "F32 1x1x1x1 4  =leaf", "F32 1x1x1 4 =leaf", "F32 1x1x1x1 =leaf", "   =leaf",
        "F32 1x1x1x1 4 leaf"})
    EXPECT_FALSE(parse_source(text)) << "\"" << text << "\"";
  EXPECT_TRUE(parse_source("F32 1x1x1x1 4 #4294967295"));
}

TEST(ModelTracks, AreTheSameAfterTheirNames) {
  for (const std::uint32_t tid : {0U, 7U, std::numeric_limits<std::uint32_t>::max()}) {
    EXPECT_EQ(parse_model_calls_track(model_calls_track(tid)), tid);
    const auto thread = parse_graph_thread_track(graph_thread_track(3, tid));
    ASSERT_TRUE(thread);
    EXPECT_EQ(thread->ith, 3U);
    EXPECT_EQ(thread->caller, tid);
  }
  EXPECT_EQ(model_calls_track(12), "model calls of thread 12");
  EXPECT_EQ(graph_thread_track(3, 12), "graph thread 3 of 12");
}

TEST(ModelTracks, RefuseOtherNames) {
  for (const std::string_view name :
       {"", "model calls of thread", "model calls of thread ", "model calls of thread x",
        "model calls of thread -1", "model calls of thread 4294967296", " model calls of thread 1",
        "model calls of thread 1 ", "graph thread 1 of 2"})
    EXPECT_FALSE(parse_model_calls_track(name)) << name;
  for (const std::string_view name :
       {"", "graph thread", "graph thread of 5", "graph thread  of 5", "graph thread 1",
        "graph thread 1 of", "graph thread 1 of ", "graph thread x of 5", "graph thread 1 of x",
        "graph thread -1 of 5", "graph thread 1 of 2 of 3", "graph thread 4294967296 of 5",
        "model calls of thread 1", " of 5"})
    EXPECT_FALSE(parse_graph_thread_track(name)) << name;
}

TEST(ModelLevels, AreTheSameAfterTheirNames) {
  for (const ModelLevel level : {ModelLevel::kNone, ModelLevel::kToken, ModelLevel::kGraph,
                                 ModelLevel::kOperator, ModelLevel::kThread})
    EXPECT_EQ(model_level_from_name(model_level_name(level)), level);
  EXPECT_EQ(model_level_name(ModelLevel::kNone), "none");
  EXPECT_EQ(model_level_name(ModelLevel::kThread), "thread");
  for (const std::string_view name : {"", "Token", "tokens", "threads", "none "})
    EXPECT_FALSE(model_level_from_name(name)) << name;
}

TEST(ModelWords, ComputeNothing) {
  for (const std::string_view op : {"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"})
    EXPECT_TRUE(is_view_operator(op)) << op;
  for (const std::string_view op : {"", "CONT", "CPY", "MUL_MAT", "view"})
    EXPECT_FALSE(is_view_operator(op)) << op;
}

}  // namespace
}  // namespace kansoku::trace
