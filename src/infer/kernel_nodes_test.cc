// SPDX-License-Identifier: Apache-2.0
#include "infer/kernel_nodes.h"

#include <gtest/gtest.h>

#include <string>

namespace kansoku::infer {
namespace {

std::vector<Node> nodes_of(const std::vector<std::string>& ops) {
  std::vector<Node> out;
  for (const std::string& op : ops) {
    Node node;
    node.op = op;
    out.push_back(node);
  }
  return out;
}

std::optional<std::vector<std::size_t>> align(const std::vector<std::string>& ops,
                                              const std::vector<std::string_view>& kernels) {
  std::vector<std::uint32_t> computed;
  for (std::uint32_t i = 0; i < ops.size(); ++i)
    computed.push_back(i);
  return align_kernels(nodes_of(ops), computed, kernels);
}

using Places = std::vector<std::size_t>;

TEST(KernelNodes, EachKernelHasItsNode) {
  EXPECT_EQ(align({"RMS_NORM", "MUL", "MUL_MAT", "ROPE"},
                  {"rms_norm_f32<256>", "k_bin_bcast<op_mul, float>", "mul_mat_vec_f<float>",
                   "rope_norm<true>"}),
            (Places{0, 1, 2, 3}));
}

TEST(KernelNodes, FusedNodesBelongToTheKernelBeforeThem) {
  EXPECT_EQ(align({"RMS_NORM", "MUL", "MUL_MAT", "ROPE", "SET_ROWS", "MUL_MAT", "ADD"},
                  {"rms_norm_f32<256, true>", "mul_mat_vec_f<float>", "rope_norm<float, __half>",
                   "mul_mat_vec_f<float, true>"}),
            (Places{0, 2, 3, 5}));
}

TEST(KernelNodes, AGateAndItsProductsMayBeOneKernel) {
  EXPECT_EQ(align({"MUL_MAT", "MUL_MAT", "GLU", "MUL_MAT", "ADD"},
                  {"mul_mat_vec_q<type, 1, true>", "mul_mat_vec_q<type, 1, false>",
                   "k_bin_bcast<op_add, float>"}),
            (Places{0, 3, 4}));
}

TEST(KernelNodes, HelpersBelongToTheNextKernel) {
  EXPECT_EQ(align({"MUL_MAT", "MUL_MAT"},
                  {"quantize_q8_1", "mul_mat_q<type>", "quantize_q8_1", "mul_mat_q<type>"}),
            (Places{0, 0, 1, 1}));
}

TEST(KernelNodes, ViewsAreNotAskedFor) {
  const auto nodes = nodes_of({"RMS_NORM", "VIEW", "MUL_MAT"});
  EXPECT_EQ(align_kernels(nodes, {0, 2}, {"rms_norm_f32<256>", "mul_mat_vec_f<float>"}),
            (Places{0, 1}));
}

TEST(KernelNodes, KernelsOfAnotherProgramFitNothing) {
  EXPECT_EQ(align({"RMS_NORM", "MUL_MAT", "ROPE"}, {"vectorised_copy", "reduce", "sort_keys"}),
            std::nullopt);
  EXPECT_EQ(align({"RMS_NORM", "MUL_MAT"}, {}), std::nullopt);
  EXPECT_EQ(align({}, {"rms_norm_f32"}), std::nullopt);
}

}  // namespace
}  // namespace kansoku::infer
