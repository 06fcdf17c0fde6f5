// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "common/rng.h"

namespace kansoku::stats {

/// A standard normal number.
double gaussian(RandomStream& random);

/// Three correlated clusters in two dimensions at (0, 0), (`distance`, `distance`) and
/// (2 `distance`, 4 `distance`); row i belongs to cluster i % 3.
std::vector<double> three_clusters(std::size_t count, double distance = 10);

}  // namespace kansoku::stats
