// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "stats/distribution.h"

namespace kansoku::stats::internal {

// Maximum likelihood where there is no closed form. Deterministic; pure; any thread. Sources:
// textbook likelihood equations.

/// `logs`: finite, ascending, at least two different ones. Parameters in the order of
/// parameter_names(kWeibull): the shape is the root of the profile likelihood's derivative.
[[nodiscard]] std::vector<double> weibull_parameters(std::span<const double> logs);

/// `log_mean` is the logarithm of the mean, `mean_log` the mean of the logarithms, which is less.
[[nodiscard]] std::vector<double> gamma_parameters(double log_mean, double mean_log);

/// kExponentiatedWeibull or kBurrXII, `logs` as above. Starts at several outer shapes with the
/// median in place; each is searched on every n-th value so that 500 at most are left, the best
/// one then on all. kInternal if the search library fails.
[[nodiscard]] Result<std::vector<double>> searched_parameters(Family family,
                                                              std::span<const double> logs);

}  // namespace kansoku::stats::internal
