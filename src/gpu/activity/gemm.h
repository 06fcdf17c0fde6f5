// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku::gpu::activity {

/// The size of a matrix product: `batch` times (m x k) by (k x n).
struct GemmShape {
  std::uint64_t batch{1}, m{0}, n{0}, k{0};
  friend auto operator<=>(const GemmShape&, const GemmShape&) = default;
};

/// 2 b m n k: a multiplication and an addition each.
[[nodiscard]] double flop_of(const GemmShape& shape);

/// The product of one of PyTorch's operators by its "Input Dims" ("[[2, 3], [3, 4]]"): mm, addmm,
/// bmm and baddbmm, which the others (linear, matmul) call. Nothing for other operators and for
/// dimensions that do not fit each other.
[[nodiscard]] std::optional<GemmShape> gemm_of_operator(std::string_view op,
                                                        std::string_view input_dims);

}  // namespace kansoku::gpu::activity
