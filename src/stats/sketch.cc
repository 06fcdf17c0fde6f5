// SPDX-License-Identifier: Apache-2.0
#include "stats/sketch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kansoku::stats {
namespace {

// Bucket i holds (kLeast * g^(i-1), kLeast * g^i] and stands for the value in its middle.
const double kGrowth = (1 + LogSketch::kRelativeError) / (1 - LogSketch::kRelativeError);
const double kLogGrowth = std::log(kGrowth);

std::size_t bucket_of(double value) {
  const double index =
      std::ceil(std::log(std::min(value, LogSketch::kMost) / LogSketch::kLeast) / kLogGrowth);
  return index <= 0 ? 0 : static_cast<std::size_t>(index);
}

}  // namespace

void LogSketch::add(double value, std::uint64_t count) {
  if (!(value >= kLeast)) {
    zeros_ += count;
    return;
  }
  const std::size_t bucket = bucket_of(value);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  buckets_[bucket] += count;
  above_zero_ += count;
}

void LogSketch::merge(const LogSketch& other) {
  zeros_ += other.zeros_;
  above_zero_ += other.above_zero_;
  if (other.buckets_.size() > buckets_.size()) buckets_.resize(other.buckets_.size());
  for (std::size_t i = 0; i < other.buckets_.size(); ++i)
    buckets_[i] += other.buckets_[i];
}

double LogSketch::quantile(double share) const {
  const auto rank = static_cast<std::uint64_t>(
      std::clamp(share, 0.0, 1.0) * static_cast<double>(std::max<std::uint64_t>(count(), 1) - 1));
  std::uint64_t seen = zeros_;
  if (rank < seen) return 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (rank < seen) return kLeast * std::pow(kGrowth, static_cast<double>(i)) * 2 / (1 + kGrowth);
  }
  return 0;
}

}  // namespace kansoku::stats
