// SPDX-License-Identifier: Apache-2.0
#include "stats/bootstrap.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace kansoku::stats {

std::size_t default_block_length(std::size_t item_count) {
  const double root = std::ceil(std::cbrt(static_cast<double>(item_count)) - 1e-9);
  return std::max<std::size_t>(1, static_cast<std::size_t>(root));
}

BlockBootstrap::BlockBootstrap(std::size_t item_count, std::size_t block_length, std::uint64_t seed)
    : item_count_(item_count),
      block_length_(std::clamp<std::size_t>(block_length, 1, std::max<std::size_t>(1, item_count))),
      rng_(seed) {}

std::span<const Block> BlockBootstrap::draw() {
  blocks_.clear();
  for (std::size_t left = item_count_; left > 0;) {
    const std::size_t begin = rng_.below(item_count_);
    const std::size_t count = std::min(block_length_, left);
    const std::size_t until_end = std::min(count, item_count_ - begin);
    blocks_.push_back({begin, until_end});
    if (until_end < count) blocks_.push_back({0, count - until_end});
    left -= count;
  }
  return blocks_;
}

PrefixSums::PrefixSums(std::span<const double> values) : sums_(values.size() + 1) {
  for (std::size_t i = 0; i < values.size(); ++i)
    sums_[i + 1] = sums_[i] + values[i];
}

double PrefixSums::mean(std::span<const Block> blocks) const {
  double sum = 0;
  std::size_t count = 0;
  for (const Block& block : blocks) {
    CHECK(block.begin + block.count < sums_.size());
    sum += sums_[block.begin + block.count] - sums_[block.begin];
    count += block.count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace kansoku::stats
