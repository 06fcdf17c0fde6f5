// SPDX-License-Identifier: Apache-2.0
#include "infer/kernel_nodes.h"

#include <algorithm>
#include <array>

namespace kansoku::infer {
namespace {

struct KernelWords {
  std::string_view op;
  std::array<std::string_view, 6> words;  // some of these in the name of its kernels
};
// Read at ggml 0.25, src/ggml-cuda.
constexpr std::array<KernelWords, 22> kWords{{
    {"MUL_MAT", {"mul_mat", "gemm", "gemv", "k_compute_batched_ptrs", "cutlass", "mmq"}},
    {"MUL_MAT_ID", {"mul_mat", "gemm", "gemv", "mm_ids", "mmq", "cutlass"}},
    {"RMS_NORM", {"rms_norm"}},
    {"NORM", {"norm_f32"}},
    {"L2_NORM", {"l2_norm"}},
    {"ROPE", {"rope_"}},
    {"SET_ROWS", {"set_rows"}},
    {"GET_ROWS", {"get_rows"}},
    {"SOFT_MAX", {"soft_max", "topk_moe"}},
    {"FLASH_ATTN_EXT", {"flash_attn", "fattn"}},
    {"ADD", {"bin_bcast<op_add", "bin_bcast_unravel<op_add", "fused_add"}},
    {"ADD_ID", {"add_id"}},
    {"SUB", {"bin_bcast<op_sub", "bin_bcast_unravel<op_sub"}},
    {"MUL", {"bin_bcast<op_mul", "bin_bcast_unravel<op_mul"}},
    {"DIV", {"bin_bcast<op_div", "bin_bcast_unravel<op_div"}},
    {"SCALE", {"scale_f32"}},
    {"GLU", {"unary_gated_op", "swiglu", "glu"}},
    {"UNARY", {"unary_op"}},
    {"CPY", {"cpy", "convert_unary"}},
    {"CONT", {"cpy", "convert_unary"}},
    {"ARGSORT", {"argsort", "sort"}},
    {"SUM_ROWS", {"reduce_rows", "sum_rows"}},
}};
constexpr std::array<std::string_view, 5> kHelpers{"quantize_", "cpy", "convert_unary",
                                                   "stream_k_fixup", "combine"};

/// Two operators of which the second may be part of the first one's kernel.
struct Fusion {
  std::string_view first, second;
};
constexpr std::array<Fusion, 14> kFusions{{{"RMS_NORM", "MUL"},
                                           {"MUL", "ADD"},
                                           {"MUL", "ROPE"},
                                           {"ROPE", "SET_ROWS"},
                                           {"MUL_MAT", "ADD"},
                                           {"MUL_MAT", "MUL_MAT"},
                                           {"MUL_MAT", "GLU"},
                                           {"MUL_MAT_ID", "ADD_ID"},
                                           {"MUL_MAT_ID", "MUL_MAT_ID"},
                                           {"MUL_MAT_ID", "GLU"},
                                           {"ADD", "ADD"},
                                           {"UNARY", "MUL"},
                                           {"SOFT_MAX", "ARGSORT"},
                                           {"ARGSORT", "GET_ROWS"}}};

// Fusing costs, so that an operator with a kernel of its own name is not taken for a part of
// another; what fits nothing costs more than any number of fusions that could hide it.
constexpr std::uint32_t kFused = 1, kHelper = 1, kStrange = 20;
constexpr std::size_t kSizeMax = 4096;  // nodes, and kernels
constexpr std::size_t kStrangeShare = 10;

bool is_of(std::string_view kernel, std::string_view op) {
  const auto* const row = std::find_if(kWords.begin(), kWords.end(),
                                       [&](const KernelWords& one) { return one.op == op; });
  if (row == kWords.end()) return false;
  return std::any_of(row->words.begin(), row->words.end(), [&](std::string_view word) {
    return !word.empty() && kernel.find(word) != std::string_view::npos;
  });
}

bool is_helper(std::string_view kernel) {
  return std::any_of(kHelpers.begin(), kHelpers.end(), [&](std::string_view word) {
    return kernel.find(word) != std::string_view::npos;
  });
}

bool may_follow(std::string_view first, std::string_view second) {
  return std::any_of(kFusions.begin(), kFusions.end(),
                     [&](const Fusion& one) { return one.first == first && one.second == second; });
}

}  // namespace

std::optional<std::vector<std::size_t>> align_kernels(
    const std::vector<Node>& nodes, const std::vector<std::uint32_t>& computed,
    const std::vector<std::string_view>& kernels) {
  const std::size_t n = computed.size(), m = kernels.size();
  if (n == 0 || m == 0 || n > kSizeMax || m > kSizeMax) return std::nullopt;
  const auto op = [&](std::size_t i) -> std::string_view { return nodes[computed[i]].op; };
  // cost[i][j]: of the first i nodes and j kernels; from: 1 a pair, 2 a node more, 3 a kernel more.
  constexpr std::uint32_t kFar = UINT32_MAX / 2;
  std::vector<std::uint32_t> cost((n + 1) * (m + 1), kFar);
  std::vector<std::uint8_t> from(cost.size(), 0);
  const auto at = [&](std::size_t i, std::size_t j) { return i * (m + 1) + j; };
  cost[at(0, 0)] = 0;
  const auto offer = [&](std::size_t to, std::uint32_t value, std::uint8_t how) {
    if (value < cost[to]) {
      cost[to] = value;
      from[to] = how;
    }
  };
  for (std::size_t i = 0; i <= n; ++i) {
    for (std::size_t j = 0; j <= m; ++j) {
      const std::uint32_t here = cost[at(i, j)];
      if (here >= kFar) continue;
      if (i < n && j < m && is_of(kernels[j], op(i))) offer(at(i + 1, j + 1), here, 1);
      if (i < n)
        offer(at(i + 1, j), here + (i > 0 && may_follow(op(i - 1), op(i)) ? kFused : kStrange), 2);
      if (j < m) offer(at(i, j + 1), here + (is_helper(kernels[j]) ? kHelper : kStrange), 3);
    }
  }
  if (cost[at(n, m)] > kFused * (n + m) + kStrange * (n + m) / kStrangeShare) return std::nullopt;
  std::vector<std::size_t> out(m, n);
  std::size_t next = n;  // the node of the next kernel that has one
  for (std::size_t i = n, j = m; i > 0 || j > 0;) {
    const std::uint8_t how = from[at(i, j)];
    if (how == 1) {
      --i;
      --j;
      next = i;
      out[j] = i;
    } else if (how == 2) {
      --i;
    } else {
      --j;
      out[j] = next;
    }
  }
  for (std::size_t& one : out)
    one = std::min(one, n - 1);
  return out;
}

}  // namespace kansoku::infer
