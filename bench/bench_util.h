// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

}  // namespace kansoku::bench
