// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "detect/thresholds.h"

namespace kansoku::detect {

struct GrowthOptions {
  std::size_t windows_of_sample{10};  // a sample is the median of so many windows
  std::size_t samples_of_block{5};
  std::size_t blocks{12};
  double bytes_min{kGrowthBytesMin};
  double share_min{kGrowthShareMin};  // of the level
};

struct Growth {
  double before{0}, now{0};    // medians of the first and last block
  double bytes_per_second{0};  // Theil-Sen slope
  std::int64_t begin_ns{0};
};

/// Steady growth of one value: the medians of blocks of samples rise from nearly each to nearly
/// each later one (Kendall's tau of at least 0.85 over twelve blocks: a chance of 6e-6 even without
/// trend), the last third still grows, and the whole is worth a word. Blocks of 50 windows absorb
/// the correlation from window to window. Constant memory.
/// Source: Kendall 1938, Theil 1950, Sen 1968; blocks and floors are ours.
class GrowthTest {
 public:
  explicit GrowthTest(const GrowthOptions& options) : options_(options) {}
  /// A window's value; NaN is skipped. Growth if there is some now.
  [[nodiscard]] std::optional<Growth> add(std::int64_t wall_ns, double value);
  /// How often it was asked: it looks only when a block is complete.
  [[nodiscard]] std::uint64_t judged() const { return judged_; }

 private:
  [[nodiscard]] std::optional<Growth> judge() const;

  struct Block {
    std::int64_t at_ns{0};
    double value{0};
  };
  GrowthOptions options_;
  std::vector<double> sample_, block_;
  std::deque<Block> blocks_;
  std::uint64_t judged_{0};
};

}  // namespace kansoku::detect
