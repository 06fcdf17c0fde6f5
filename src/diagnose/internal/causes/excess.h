// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "diagnose/thresholds.h"

namespace kansoku::diagnose {

struct ExcessOptions {
  double threshold_ms{0};
  double confidence_min{kConfidenceMin};
  double clip_share{0};    // tails of each rank's excess that are clipped before averaging
  bool asks_blocks{true};  // for chance: in how many blocks of the steps the rank is slowest
  std::uint32_t resample_count{2000};
  std::uint64_t seed{1};
};

struct Outlier {
  std::size_t rank_index{0};
  double excess_ms{0};  // mean per step over the median of the other ranks
  double confidence{0};
};

using RankSeries = std::vector<std::vector<double>>;  // [rank][step]

/// excess[r][s] = values[r][s] - median over the other ranks of values[.][s]; zeros for one rank.
[[nodiscard]] RankSeries excess_over_peers(const RankSeries& values);

/// Ranks whose mean excess passes the threshold and is above that of all ordinary ranks in at least
/// `confidence_min` of the block-bootstrap resamples over steps, and in more blocks of the steps
/// than kBlameChanceMax of all healthy jobs show if each block draws its slowest rank anew. At most
/// half of the ranks, one of two or three. `known` ranks are already explained: not reported and
/// not compared with. By excess, greatest first.
[[nodiscard]] std::vector<Outlier> find_outliers(const RankSeries& excess,
                                                 const std::vector<bool>& known,
                                                 const ExcessOptions& options);

/// The values less `more`, of the same shape; 0 at least.
[[nodiscard]] RankSeries without(RankSeries values, const RankSeries& more);

/// Mean over the steps of the greatest value of all ranks.
[[nodiscard]] double mean_of_slowest(const RankSeries& values);

/// The share of the positive excess that the greatest fifth of the steps carries; 0 if there is
/// none.
[[nodiscard]] double concentration(const std::vector<double>& excess);

}  // namespace kansoku::diagnose
