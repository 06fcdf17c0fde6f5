// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "stats/summary.h"

namespace kansoku::bench {

/// Median of the values and its 95 % interval by 2,000 resamples. Values: at least one.
struct MedianInterval {
  double median{0}, low{0}, high{0};
};

inline MedianInterval median_with_interval(std::span<const double> values) {
  Rng rng(1);
  std::vector<double> medians;
  std::vector<double> resample(values.size());
  for (int i = 0; i < 2000; ++i) {
    for (double& value : resample)
      value = values[rng.below(values.size())];
    medians.push_back(stats::median(resample));
  }
  return {stats::median(values), stats::quantile(medians, 0.025), stats::quantile(medians, 0.975)};
}

/// Median of `above` over median of `below`, measured in pairs (same length, at least one), and the
/// 95 % interval by 2,000 resamples of pairs: what disturbed both halves of a pair stays together.
inline MedianInterval ratio_with_interval(std::span<const double> above,
                                          std::span<const double> below) {
  Rng rng(1);
  std::vector<double> ratios, a(above.size()), b(above.size());
  for (int i = 0; i < 2000; ++i) {
    for (std::size_t k = 0; k < a.size(); ++k) {
      const std::size_t pair = rng.below(a.size());
      a[k] = above[pair];
      b[k] = below[pair];
    }
    ratios.push_back(stats::median(a) / stats::median(b));
  }
  return {stats::median(above) / stats::median(below), stats::quantile(ratios, 0.025),
          stats::quantile(ratios, 0.975)};
}

}  // namespace kansoku::bench
