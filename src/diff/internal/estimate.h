// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "diff/diff.h"
#include "diff/thresholds.h"
#include "stats/bootstrap.h"

namespace kansoku::diff {

/// Resamples of the steps of one recording, the same for all items and ranks.
class StepDraws {
 public:
  StepDraws(std::size_t step_count, std::uint32_t resamples, std::uint64_t seed);
  /// The standard error of the mean of `values`, one a step, in order.
  [[nodiscard]] double standard_error(std::span<const double> values) const;
  /// Runs of steps that are drawn together: the degrees of freedom of that error, plus one.
  [[nodiscard]] std::size_t block_count() const { return block_count_; }

 private:
  std::vector<std::vector<stats::Block>> draws_;
  std::size_t block_count_{1};
};

/// log(sum of `over` / sum of `under`) of one recording.
struct LogRatio {
  double value{0};
  double error{0};       // from its steps
  double degrees{1};     // of the error
  bool is_known{false};  // both sums are above 0
  bool varies{false};    // over / under differs from step to step
  double drift2{0};      // variance between parts of the recording, beyond the effect of their
                         // steps
  double spread2{0};     // variance between steps
};

/// Ratio of sums. Both vectors hold one entry a step. Extreme steps count as the quantiles
/// kClipShare and 1 - kClipShare, if most steps take part.
[[nodiscard]] LogRatio log_ratio(std::span<const double> over, std::span<const double> under,
                                 const StepDraws& draws);

/// Ratio of the typical step: a robust centre of over / under / factors, steps far from it left
/// out;
/// that of the sums if few steps take part, or if they have no one centre. `factors`: shared by the
/// whole lane in each step, about 1.
[[nodiscard]] LogRatio typical_ratio(std::span<const double> over, std::span<const double> under,
                                     std::span<const double> factors, const StepDraws& draws);

/// The variation from run to run, as a standard deviation of logarithms, before any is seen:
/// `sigma`, held with kPriorDegrees. 0: equal runs give equal figures.
struct Prior {
  double sigma{0};
  double spread_multiple{kSpreadMultiple};  // of the spread between steps, added to it
};

/// after - before of logarithms, with its standard error and degrees of freedom.
struct Difference {
  double value{0};
  double error{0};
  double degrees{1};
  bool is_known{false};
};

/// `before` and `after`: one entry a recording; unknown ones are left out. The variation between
/// recordings of one side is moderated by the prior; with one a side the prior is all there is.
[[nodiscard]] Difference difference(std::span<const LogRatio> before,
                                    std::span<const LogRatio> after, Prior prior);

/// Puts a difference into `out` as a ratio with a 95 % interval; the chance that it is so far from
/// `centre` comes back (not yet corrected).
double put(const Difference& difference, double centre, Change& out);

}  // namespace kansoku::diff
