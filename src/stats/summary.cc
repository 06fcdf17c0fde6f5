// SPDX-License-Identifier: Apache-2.0
#include "stats/summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace kansoku::stats {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

double mean_of_range(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double quantile(std::span<const double> values, double share) {
  if (values.empty()) return 0;
  std::vector<double> copy(values.begin(), values.end());
  const double position = std::clamp(share, 0.0, 1.0) * static_cast<double>(copy.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto nth = copy.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(copy.begin(), nth, copy.end());
  const double fraction = position - static_cast<double>(below);
  if (fraction == 0 || below + 1 >= copy.size()) return *nth;
  const double above = *std::min_element(nth + 1, copy.end());
  return *nth + fraction * (above - *nth);
}

double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

double mad(std::span<const double> values) {
  const double centre = median(values);
  std::vector<double> distances(values.begin(), values.end());
  for (double& value : distances)
    value = std::abs(value - centre);
  return median(distances);
}

double mean(std::span<const double> values) {
  return mean_of_range(sorted(values));
}

double trimmed_mean(std::span<const double> values, double trim_share) {
  const double share = std::clamp(trim_share, 0.0, 0.5);
  const auto cut = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  if (2 * cut >= values.size()) return median(values);
  const std::vector<double> copy = sorted(values);
  return mean_of_range(std::span(copy).subspan(cut, copy.size() - 2 * cut));
}

}  // namespace kansoku::stats
