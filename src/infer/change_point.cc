// SPDX-License-Identifier: Apache-2.0
#include "infer/change_point.h"

#include <algorithm>
#include <span>

#include "stats/summary.h"

namespace kansoku::infer {
namespace {

// Equal values share the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]])
      ++end;
    for (std::size_t j = i; j < end; ++j)
      out[order[j]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return out;
}

}  // namespace

double ratio_at(const std::vector<double>& values, std::size_t at) {
  const std::span<const double> all(values);
  if (at == 0 || at >= all.size()) return 1.0;
  const double before = stats::median(all.first(at));
  return before > 0 ? stats::median(all.subspan(at)) / before : 1.0;
}

std::optional<ChangePoint> find_change(const std::vector<double>& values, std::size_t side_min) {
  if (side_min == 0 || values.size() < 2 * side_min) return std::nullopt;
  const std::vector<double> rank = ranks_of(values);
  const auto count = static_cast<double>(values.size());
  const double mean = (count - 1) / 2;
  double sum = 0, best = 0;
  ChangePoint out;
  for (std::size_t i = 1; i + side_min <= values.size(); ++i) {
    sum += mean - rank[i - 1];  // above 0: those before are smaller
    if (i < side_min || sum <= 0) continue;
    const auto n = static_cast<double>(i);
    const double score = sum * sum / (n * (count - n));
    if (score <= best) continue;
    best = score;
    out.at = i;
    out.separation = 0.5 + sum / (n * (count - n));
  }
  if (out.at == 0) return std::nullopt;
  out.ratio = ratio_at(values, out.at);
  return out;
}

}  // namespace kansoku::infer
