// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/gemm.h"

#include <array>
#include <cstddef>
#include <vector>

#include "common/json.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::size_t kTextBytesMax = 4096;
constexpr std::int64_t kExtentMax = std::int64_t{1} << 31;

struct GemmOperator {
  std::string_view name;
  std::size_t first;  // input that is the left matrix; the next is the right one
  std::size_t dims;
};
constexpr std::array kGemmOperators{
    GemmOperator{"aten::mm", 0, 2}, GemmOperator{"aten::addmm", 1, 2},
    GemmOperator{"aten::bmm", 0, 3}, GemmOperator{"aten::baddbmm", 1, 3}};

std::vector<std::uint64_t> extents_of(const Json& list, std::size_t dims) {
  std::vector<std::uint64_t> out;
  if (list.size() != dims) return out;
  for (std::size_t i = 0; i < dims; ++i) {
    const std::int64_t extent = list.at(i).as_int(0);
    if (extent <= 0 || extent > kExtentMax) return {};
    out.push_back(static_cast<std::uint64_t>(extent));
  }
  return out;
}

}  // namespace

double flop_of(const GemmShape& shape) {
  return 2.0 * static_cast<double>(shape.batch) * static_cast<double>(shape.m) *
         static_cast<double>(shape.n) * static_cast<double>(shape.k);
}

std::optional<GemmShape> gemm_of_operator(std::string_view op, std::string_view input_dims) {
  for (const GemmOperator& known : kGemmOperators) {
    if (known.name != op || input_dims.size() > kTextBytesMax) continue;
    const auto dims = Json::parse(input_dims);
    if (!dims) return std::nullopt;
    const auto left = extents_of(dims->at(known.first), known.dims);
    const auto right = extents_of(dims->at(known.first + 1), known.dims);
    if (left.empty() || right.empty()) return std::nullopt;
    const std::size_t at = known.dims - 2;  // of the rows
    if (left[at + 1] != right[at] || (at == 1 && left[0] != right[0])) return std::nullopt;
    return GemmShape{at == 1 ? left[0] : 1, left[at], right[at + 1], left[at + 1]};
  }
  return std::nullopt;
}

}  // namespace kansoku::gpu::activity
