// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace kansoku::stats {

/// Quantiles of non-negative values within 1 % relative error, by counting in logarithmic buckets:
/// at most kBuckets counters, whatever the number of values; two sketches merge exactly. Values
/// below kLeast count as 0, values above kMost in the last bucket. A value type.
/// Source: the idea of DDSketch (Masson, Rim and Lee 2019); the fixed range is ours.
class LogSketch {
 public:
  static constexpr double kRelativeError = 0.01, kLeast = 1e-9, kMost = 1e12;

  void add(double value, std::uint64_t count = 1);
  void merge(const LogSketch& other);
  [[nodiscard]] std::uint64_t count() const { return zeros_ + above_zero_; }
  /// The value below which a `share` (clamped to 0..1) of all values lies; 0 without values.
  [[nodiscard]] double quantile(double share) const;

 private:
  std::uint64_t zeros_{0}, above_zero_{0};
  std::vector<std::uint64_t> buckets_;  // grows to the largest bucket in use
};

}  // namespace kansoku::stats
