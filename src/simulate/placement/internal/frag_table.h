// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulate/placement/policy.h"

namespace kansoku::simulate::placement::internal {

/// fragmentation() of policy.h as sums of table entries, for hypothetical changes of a node.
///
/// A typical pod that fits leaves unused the GPUs with less than its milli, so it can use the sum
/// over GPUs of those with at least as much; for one of k whole GPUs the idle ones, if they are k
/// or more. With the typical pods that the CPU left suffices for (a "level": only the distinct CPU
/// requests of typical pods matter) this gives
///   F = sum over GPUs of waste(left of the GPU) - 1000 * idle * whole_share(idle),
///   waste(left) = left * (1 - shares of those typical share pods with milli <= left).
/// Both tables depend on level and GPU model; models no typical pod tells apart have one set.
class FragTable {
 public:
  explicit FragTable(std::span<const TypicalPod> typical);

  /// The rows for a node of this model with so much CPU left.
  struct Row {
    const double* waste;  // [0 .. kWholeGpu]
    const double* whole;  // [0 .. kGpusPerNodeMax]: usable milli of so many idle GPUs
  };
  [[nodiscard]] Row row(std::uint32_t gpu_model, std::int64_t cpu_left) const;

  /// F of the node's GPUs under a row.
  [[nodiscard]] static double sum(Row row, const Node& node);

 private:
  void fill(std::span<const TypicalPod> typical, std::uint32_t gpu_model, std::size_t level,
            std::size_t at);

  std::vector<std::int64_t> cpu_levels_;  // ascending; level = how many are <= the CPU left
  std::array<std::uint32_t, kGpuModelMax + 1> set_of_model_{};
  std::vector<double> waste_, whole_;
};

}  // namespace kansoku::simulate::placement::internal
