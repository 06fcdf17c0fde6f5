// SPDX-License-Identifier: Apache-2.0
#include "stats/significance.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "stats/internal/policy.h"

namespace kansoku::stats {

double two_sided(double t, double degrees) {
  if (std::isnan(t)) return 1;
  const double far = std::abs(t);
  if (std::isinf(far)) return 0;
  if (std::isinf(degrees)) {
    const boost::math::normal_distribution<double, internal::Quiet> normal;
    return std::min(1.0, 2 * boost::math::cdf(complement(normal, far)));
  }
  const boost::math::students_t_distribution<double, internal::Quiet> student(degrees);
  return std::min(1.0, 2 * boost::math::cdf(complement(student, far)));
}

std::vector<double> holm(std::span<const double> chances) {
  std::vector<std::size_t> order(chances.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return chances[a] < chances[b]; });
  std::vector<double> out(chances.size());
  double most = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    most = std::max(most, chances[order[i]] * static_cast<double>(order.size() - i));
    out[order[i]] = std::min(1.0, most);
  }
  return out;
}

}  // namespace kansoku::stats
