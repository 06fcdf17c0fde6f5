// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "detect/job_model.h"
#include "detect/thresholds.h"

namespace kansoku::detect {

/// Center and spread of each column that can be modelled, from `rows` (n x columns). `spread_min`:
/// as in ModelOptions.
[[nodiscard]] std::vector<Coordinate> choose_coordinates(std::span<const double> rows,
                                                         std::span<const Column> columns,
                                                         double spread_min);
// Use of the steady steps: the mixture is fitted to the first part, the threshold set by the second
// and measured on the rest.
/// Rows as coordinates, for fitting: outliers are drawn in to `bounds` (by coordinate, in spreads;
/// empty: 8 each). A missing value is replaced by that of `fill` (n x d), or if it is empty by one
/// drawn from those of its column, so that it changes no margin.
[[nodiscard]] std::vector<double> fit_rows(std::span<const double> rows,
                                           std::span<const Column> columns,
                                           std::span<const Coordinate> coordinates,
                                           std::uint64_t seed, std::span<const double> bounds = {},
                                           std::span<const double> fill = {});
/// The mixture with the lowest BIC among up to `components_max` components, made with
/// `ridge` and not widened.
[[nodiscard]] Result<stats::Mixture> choose_mixture(std::span<const double> rows, int dimensions,
                                                    int components_max, double ridge,
                                                    std::uint64_t seed);
/// Sets the margins from the other parts.
void take_margins(JobModel::Parts& parts);
/// Adds to each diagonal `blur` times the size of differences that mean nothing.
void widen(stats::Mixture& mixture, std::span<const Coordinate> coordinates, double blur);

}  // namespace kansoku::detect
