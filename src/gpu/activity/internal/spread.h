// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/activity/activity.h"
#include "stats/summary.h"

namespace kansoku::gpu::activity {

/// Summary of values; sorts them.
[[nodiscard]] inline Spread spread_of(std::vector<double>& values) {
  Spread out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  out.mean = stats::mean(values);
  out.p50 = stats::quantile(values, 0.5);
  out.p90 = stats::quantile(values, 0.9);
  out.p99 = stats::quantile(values, 0.99);
  out.max = values.back();
  return out;
}

[[nodiscard]] inline double us_of(std::int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

}  // namespace kansoku::gpu::activity
