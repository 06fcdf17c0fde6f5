// SPDX-License-Identifier: Apache-2.0
#include "stats/mixture_data_for_test.h"

#include <cmath>
#include <numbers>

namespace kansoku::stats {

double gaussian(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

std::vector<double> three_clusters(std::size_t count, double distance) {
  RandomStream random(7, "three clusters");
  std::vector<double> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = gaussian(random);
    const double b = gaussian(random);
    const auto cluster = static_cast<double>(i % 3);
    rows.push_back(distance * cluster + a);
    rows.push_back(distance * cluster * cluster + 0.5 * a + b);
  }
  return rows;
}

}  // namespace kansoku::stats
