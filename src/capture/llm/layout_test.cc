// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "capture/llm/graph_for_test.h"

namespace kansoku::capture::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kSizeMax = std::int64_t{1} << 40;

Result<Tensor> read(const TensorForTest& tensor) {
  const auto bytes = bytes_for_test(tensor, layout_for_test());
  return read_tensor(tensor.address, bytes, layout_for_test(), names_for_test());
}
std::string refusal(const TensorForTest& tensor) {
  const auto out = read(tensor);
  if (out) return "accepted";
  EXPECT_EQ(out.error().code, Code::kCorrupt);
  return out.error().what;
}
/// A tensor of a type, contiguous.
trace::TensorShape shape(std::uint32_t type, std::array<std::int64_t, 4> ne,
                         std::array<std::uint64_t, 4> nb) {
  Tensor tensor;
  tensor.type = type;
  tensor.ne = ne;
  tensor.nb = nb;
  return shape_of(tensor);
}

TEST(Layouts, LieWithinARecordAndDoNotOverlap) {
  for (const Layout& layout : layouts()) {
    EXPECT_FALSE(layout.name.empty());
    const Layout::Tensor& at = layout.tensor;
    const std::vector<std::pair<std::size_t, std::size_t>> members{
        {at.type, 4},  {at.ne, 32},  {at.nb, 32},      {at.op, 4},   {at.op_params, 64},
        {at.flags, 4}, {at.src, 80}, {at.view_src, 8}, {at.data, 8}, {at.name, at.name_bytes}};
    std::set<std::size_t> bytes;
    for (const auto& [offset, size] : members) {
      EXPECT_LE(offset + size, std::size_t{WIRE_MODEL_TENSOR_BYTES});
      for (std::size_t i = 0; i < size; ++i)
        EXPECT_TRUE(bytes.insert(offset + i).second) << layout.name << " " << offset;
    }
    EXPECT_EQ(layout.wire.tensor_op, at.op);
    EXPECT_EQ(layout.wire.tensor_src, at.src);
    EXPECT_EQ(layout.wire.tensor_ne, at.ne);
    EXPECT_EQ(layout.wire.tensor_nb, at.nb);
    EXPECT_EQ(layout.wire.tensor_data, at.data);
    EXPECT_EQ(layout.wire.op_mul_mat_id, 0U) << "numbers of operators are read, never known";
  }
}

TEST(ReadTensor, TakesEveryMember) {
  TensorForTest made{0x1000, "attn_norm-0", kMul, {512, 3, 1, 1}, {0x2000, 0x3000}};
  made.variant = 9;
  auto bytes = bytes_for_test(made, layout_for_test());
  put_for_test(bytes, layout_for_test().tensor.flags, std::int32_t{4});
  put_for_test(bytes, layout_for_test().tensor.view_src, std::uint64_t{0x4000});
  const auto read = read_tensor(0x1000, bytes, layout_for_test(), names_for_test());
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->address, 0x1000U);
  EXPECT_EQ(read->name, "attn_norm-0");
  EXPECT_EQ(read->type, kF32);
  EXPECT_EQ(read->op, kMul);
  EXPECT_EQ(read->flags, 4);
  EXPECT_EQ(read->view_src, 0x4000U);
  EXPECT_EQ(read->variant, 9U);
  EXPECT_THAT(read->ne, ElementsAre(512, 3, 1, 1));
  EXPECT_THAT(read->nb, ElementsAre(4U, 2048U, 6144U, 6144U));
  EXPECT_THAT(read->src, ElementsAre(0x2000U, 0x3000U, 0U, 0U, 0U, 0U, 0U, 0U, 0U, 0U));
}

TEST(ReadTensor, RefusesWhatIsNone) {
  const TensorForTest good{1, "good", kAdd};
  EXPECT_EQ(refusal(good), "accepted");
  const auto with_type = [&](std::uint32_t type) {
    TensorForTest out = good;
    out.type = type;
    return out;
  };
  EXPECT_EQ(refusal(with_type(4)), "read a tensor: type 4") << "there once was one";
  EXPECT_EQ(refusal(with_type(42)), "read a tensor: strides without the size of the type: 4");
  EXPECT_EQ(refusal(with_type(43)), "read a tensor: type 43");
  EXPECT_EQ(refusal(with_type(0xffffffff)), "read a tensor: type 4294967295");
  EXPECT_EQ(refusal({1, "good", kView}), "accepted");
  EXPECT_EQ(refusal({1, "bad", kView + 1}), "read a tensor: operator 7");
  EXPECT_EQ(refusal({1, "bad", kAdd, {1, 1, -1, 1}, {}, kF32, {4, 4, 4, 4}}),
            "read a tensor: size -1");
  EXPECT_EQ(refusal({1, "good", kAdd, {1, 1, 1, kSizeMax}}), "accepted");
  EXPECT_EQ(refusal({1, "bad", kAdd, {1, 1, 1, kSizeMax + 1}}),
            "read a tensor: size " + std::to_string(kSizeMax + 1));
  EXPECT_EQ(refusal({1, "none", kAdd, {0, 0, 0, 0}}), "accepted");
  EXPECT_EQ(refusal({1, "permuted", kAdd, {2, 2, 2, 2}, {}, kF32, {16, 8, 4, 32}}), "accepted");
  EXPECT_EQ(refusal({1, "bad", kAdd, {2, 2, 2, 2}, {}, kF32, {16, 8, 2, 32}}),
            "read a tensor: strides without the size of the type: 16");
}

TEST(ReadTensor, RefusesNamesThatAreNoText) {
  const std::string most(63, 'n');
  EXPECT_EQ(read({1, most, kAdd}).value().name, most);
  EXPECT_EQ(read({1, "", kAdd}).value().name, "");
  EXPECT_EQ(read({1, "caf\xc3\xa9", kAdd}).value().name, "caf\xc3\xa9");
  const std::string no_text = "read a tensor: a name that is no text at 256";
  EXPECT_EQ(refusal({1, most + "n", kAdd}), no_text) << "it has no end";
  EXPECT_EQ(refusal({1, "a\tb", kAdd}), no_text);
  EXPECT_EQ(refusal({1, "\x7f", kAdd}), no_text);
}

TEST(ReadTensor, TakesFewerBytesForZero) {
  // For a record that ends early, nothing is made up, and nothing is read behind it.
  const auto bytes = bytes_for_test({1, "name", kAdd}, layout_for_test());
  for (std::size_t count = 0; count < bytes.size(); ++count) {
    const auto out =
        read_tensor(1, std::span(bytes).first(count), layout_for_test(), names_for_test());
    EXPECT_TRUE(!out || out->name.empty()) << count;
  }
}

TEST(TypeName, IsThatOfTheNumber) {
  EXPECT_EQ(type_name(0), "F32");
  EXPECT_EQ(type_name(2), "Q4_0");
  EXPECT_EQ(type_name(8), "Q8_0");
  EXPECT_EQ(type_name(12), "Q4_K");
  EXPECT_EQ(type_name(26), "I32");
  EXPECT_EQ(type_name(30), "BF16");
  EXPECT_EQ(type_name(39), "MXFP4");
  for (const std::uint32_t none : {4U, 5U, 31U, 43U, 0xffffffffU})
    EXPECT_EQ(type_name(none), "");
}

TEST(ShapeOf, TakesBytesFromTheFirstToTheLast) {
  EXPECT_EQ(shape(kF32, {3, 2, 1, 1}, {4, 12, 24, 24}),
            (trace::TensorShape{"F32", {3, 2, 1, 1}, 24}));
  EXPECT_EQ(shape(kF16, {512, 512, 1, 1}, {2, 1024, 524288, 524288}).bytes, 524288U);
  // Rows of a cache, each at a distance: the last one has no gap behind it.
  EXPECT_EQ(shape(kF32, {3, 2, 1, 1}, {4, 100, 200, 200}).bytes, 112U);
  EXPECT_EQ(shape(kF32, {2, 3, 1, 1}, {12, 4, 24, 24}).bytes, 24U) << "transposed";
  EXPECT_EQ(shape(kQ4, {64, 2, 1, 1}, {18, 36, 72, 72}).bytes, 72U);
  EXPECT_EQ(shape(12, {256, 3, 2, 1}, {144, 144, 432, 864}).bytes, 864U);
  EXPECT_EQ(shape(kF32, {5, 0, 1, 1}, {4, 20, 0, 0}).bytes, 0U);
}

TEST(ShapeOf, HasALimit) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
  const auto made = shape(kF32, {kSizeMax, 2, 1, 1}, {4096, 1, 1, 1});
  EXPECT_EQ(made.bytes, kMost);
  EXPECT_TRUE(trace::parse_shape(trace::shape_text(made)));
}

TEST(EngineNames, KnowTheirNumbers) {
  EXPECT_EQ(names_for_test().op("MUL_MAT"), kMulMat);
  EXPECT_EQ(names_for_test().op("NONE"), 0U);
  EXPECT_EQ(names_for_test().op("mul_mat"), std::nullopt);
  EXPECT_EQ(EngineNames{}.op(""), std::nullopt);
}

TEST(Layout, IsChosenByVersionAndALibraryThatTellsNoneIsOld) {
  for (const char* version : {"0.17.0", "0.25.1", "0.26.0", "0.17", "1.0.0"})
    EXPECT_NE(layouts()[layout_for(version)].wire.graph_uid, WIRE_MODEL_NOWHERE) << version;
  for (const char* version : {"0.9.7", "0.16.9", "0.0.1", "0.16", "", "dev", "0.x", "x.30"})
    EXPECT_EQ(layouts()[layout_for(version)].wire.graph_uid, WIRE_MODEL_NOWHERE) << version;
}

}  // namespace
}  // namespace kansoku::capture::llm
