// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "infer/run.h"

namespace kansoku::infer {

/// Arithmetic and memory traffic of a node computed once. FLOPs: a product of matrices takes two
/// for each of K x M x N; attention two for each of the query's length and two for each of the
/// value's, of each cell and head, softmax left out; other operators one for each element of the
/// result. Bytes: each source and the result once, from first to last byte; of experts only those
/// that can be used, of a lookup of rows only those rows. Sets `flops` and `bytes`.
void estimate_work(Node& node);

/// The experts that one call used: "2x1 3 7".
struct ExpertsUsed {
  std::uint32_t used{0}, tokens{0};
  std::vector<std::int32_t> ids;  // row by row; fewer than used x tokens if it was cut
};
[[nodiscard]] std::optional<ExpertsUsed> parse_experts(std::string_view untrusted);

}  // namespace kansoku::infer
