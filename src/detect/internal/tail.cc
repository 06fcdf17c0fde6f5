// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/tail.h"

#include <algorithm>
#include <cmath>

#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr double kTailShare = 0.1;
constexpr std::size_t kTailValuesMin = 10;
constexpr double kGross = 20;  // medians of the excess: beyond 1e-6 of an exponential tail
constexpr double kShapeMin = -0.2, kShapeMax = 0.5;
constexpr double kAboveLargest = 1.5;
constexpr double kCorrelationMax = 0.9;

double log_beta(double a, double b) {
  return std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
}
double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

}  // namespace

double Tail::quantile(double p) const {
  if (p >= share || scale <= 0) return from;
  const double ratio = share / std::max(p, 1e-300);
  if (std::fabs(shape) < 1e-9) return from + scale * std::log(ratio);
  return from + scale * (std::pow(ratio, shape) - 1) / shape;
}

Tail fit_tail(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  const auto tenth = static_cast<std::size_t>(kTailShare * static_cast<double>(n));
  std::size_t above = std::min(n - 1, std::max(kTailValuesMin, tenth)), outliers = 0;
  Tail tail;
  tail.from = sorted[n - 1 - above];
  if (above == 0) return tail;
  // Gross outliers (a benign long step of all ranks) are no part of the tail: they would put every
  // threshold among themselves.
  const double gross = kGross * (stats::median(std::span(sorted).last(above)) - tail.from);
  while (above > kTailValuesMin / 2 && gross > 0 && sorted[n - 1 - outliers] - tail.from > gross) {
    ++outliers;
    --above;
  }
  tail.share = static_cast<double>(above) / static_cast<double>(n - outliers);
  double b0 = 0, b1 = 0;  // mean, and mean weighted by the share of values that are larger
  for (std::size_t i = 0; i < above; ++i) {
    const double excess = sorted[n - outliers - above + i] - tail.from;
    const double rank_share = 1 - (static_cast<double>(i) + 0.65) / static_cast<double>(above);
    b0 += excess / static_cast<double>(above);
    b1 += excess * rank_share / static_cast<double>(above);
  }
  if (b0 <= 0) return tail;
  const double difference = b0 - 2 * b1;
  tail.shape = difference <= 0 ? kShapeMax : std::clamp(2 - b0 / difference, kShapeMin, kShapeMax);
  tail.scale = b0 * (1 - tail.shape);  // keeps the mean excess when the shape was clamped
  return tail;
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

double upper_share(std::uint32_t k, std::uint32_t n, double p, double rho) {
  if (k == 0) return 1;
  if (k > n || p <= 0) return 0;
  if (p >= 1) return 1;
  double sum = 0;
  const double size = rho > 0 ? (1 - rho) / rho : 0;
  for (std::uint32_t i = k; i <= n; ++i) {
    const double x = i, rest = static_cast<double>(n) - x;
    const double log_probability =
        rho > 0 ? log_beta(x + p * size, rest + (1 - p) * size) - log_beta(p * size, (1 - p) * size)
                : x * std::log(p) + rest * std::log1p(-p);
    sum += std::exp(log_choose(n, x) + log_probability);
  }
  return std::min(sum, 1.0);
}

std::uint32_t smallest_k(std::uint32_t n, double p, double rho, double alpha) {
  for (std::uint32_t k = 1; k <= n; ++k)
    if (upper_share(k, n, p, rho) <= alpha) return k;
  return n + 1;
}

FlagRate fit_flags(std::span<const double> counts, double n) {
  FlagRate out;
  if (counts.empty() || n < 1) return out;
  out.share = stats::mean(counts) / n;
  if (out.share <= 0 || out.share >= 1 || counts.size() < 2 || n < 2) return out;
  double variance = 0;
  for (const double count : counts)
    variance += (count / n - out.share) * (count / n - out.share);
  variance /= static_cast<double>(counts.size() - 1);
  const double binomial = out.share * (1 - out.share) / n;
  out.correlation = std::clamp((variance / binomial - 1) / (n - 1), 0.0, kCorrelationMax);
  return out;
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
