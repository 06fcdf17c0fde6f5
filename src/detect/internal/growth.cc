// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/growth.h"

#include <algorithm>
#include <cmath>

#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {}  // namespace

std::optional<Growth> GrowthTest::add(std::int64_t wall_ns, double value) {
  if (!std::isfinite(value) || value < 0) return std::nullopt;
  sample_.push_back(value);
  if (sample_.size() < options_.windows_of_sample) return std::nullopt;
  block_.push_back(stats::median(sample_));
  sample_.clear();
  if (block_.size() < options_.samples_of_block) return std::nullopt;
  blocks_.push_back({wall_ns, stats::median(block_)});
  block_.clear();
  if (blocks_.size() > options_.blocks) blocks_.pop_front();
  ++judged_;
  return judge();
}

std::optional<Growth> GrowthTest::judge() const {
  const std::size_t n = blocks_.size();
  if (n < options_.blocks) return std::nullopt;
  double rises = 0;
  std::vector<double> slopes;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      const double rise = blocks_[j].value - blocks_[i].value;
      rises += rise > 0 ? 1 : rise < 0 ? -1 : 0;
      slopes.push_back(
          rise * 1e9 /
          static_cast<double>(std::max<std::int64_t>(1, blocks_[j].at_ns - blocks_[i].at_ns)));
    }
  }
  const double tau = rises / static_cast<double>(slopes.size());
  const double first = blocks_.front().value, last = blocks_.back().value;
  const double growth = last - first;
  if (tau < kTauMin || growth < std::max(options_.bytes_min, options_.share_min * first))
    return std::nullopt;
  if (last - blocks_[n - 1 - n / 3].value < kLastThirdMin * growth) return std::nullopt;
  return Growth{first, last, stats::median(slopes), blocks_.front().at_ns};
}

}  // namespace kansoku::detect
