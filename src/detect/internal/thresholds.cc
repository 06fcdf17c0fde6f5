// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/thresholds.h"

#include <algorithm>
#include <cmath>

#include "detect/thresholds.h"
#include "stats/summary.h"
#include "stats/tail.h"

namespace kansoku::detect {
namespace {}  // namespace

double tail_level(std::span<const double> values, double p) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size(), least = stats::Tail::kExceedancesMin;
  const auto tenth = static_cast<std::size_t>(kTailShare * static_cast<double>(n));
  std::size_t above = std::min(n - 1, std::max(least, tenth));
  const double from = sorted[n - 1 - above];
  // Gross outliers (a benign long step of all ranks) are no part of the tail: they would put every
  // threshold among themselves.
  const double gross =
      above == 0 ? 0 : kGross * (stats::median(std::span(sorted).last(above)) - from);
  while (above > least / 2 && gross > 0 && sorted.back() - from > gross) {
    sorted.pop_back();
    --above;
  }
  if (const auto tail = stats::Tail::fit(sorted, from)) return tail->level(p);
  return p * static_cast<double>(sorted.size()) >= static_cast<double>(above) ? from
                                                                              : sorted.back();
}

double window_cut(std::span<const double> maxima, double alpha, double floor) {
  if (maxima.empty()) return floor;
  const double middle = stats::median(maxima);
  const double largest = *std::max_element(maxima.begin(), maxima.end());
  double excess = 0, count = 0;
  for (const double value : maxima) {
    excess += std::max(0.0, value - middle);
    count += value > middle ? 1 : 0;
  }
  const double scale = count > 0 ? excess / count : 0;
  return std::max({floor, middle + scale * std::log(0.5 / alpha), kAboveLargest * largest});
}

double upper_share(const stats::BetaBinomial& flags, std::uint32_t k, std::uint32_t n) {
  if (flags.mean <= 0) return k == 0 ? 1 : 0;
  if (flags.mean >= 1) return k <= n ? 1 : 0;
  return flags.at_least(k, n).value_or(1);
}

std::uint32_t smallest_k(const stats::BetaBinomial& flags, std::uint32_t n, double alpha) {
  for (std::uint32_t k = 1; k <= n; ++k)
    if (upper_share(flags, k, n) <= alpha) return k;
  return n + 1;
}

double correlation_of(std::span<const stats::CountWindow> windows) {
  const auto fit = stats::fit_counts(windows);
  return fit ? std::min(fit->model.correlation, kCorrelationMax) : 0;
}

ShareInterval share_interval(double k, double n) {
  if (n <= 0) return {};
  constexpr double kZ = 1.959963984540054;
  const double share = k / n;
  const double middle = share + kZ * kZ / (2 * n);
  const double half = kZ * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n));
  const double scale = 1 + kZ * kZ / n;
  return {std::max(0.0, (middle - half) / scale), std::min(1.0, (middle + half) / scale)};
}

}  // namespace kansoku::detect
