// SPDX-License-Identifier: Apache-2.0
#include "stats/peers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>

namespace kansoku::stats {
namespace {

// The median of `sorted` without the item at `left_out`. At least two items.
double median_without(const std::vector<double>& sorted, std::size_t left_out) {
  const std::size_t count = sorted.size() - 1;
  const auto at = [&](std::size_t i) { return sorted[i < left_out ? i : i + 1]; };
  return count % 2 == 1 ? at(count / 2) : 0.5 * (at(count / 2 - 1) + at(count / 2));
}

// |value - centre| of all, ascending: two runs of the sorted values, merged.
std::vector<double> deviations(const std::vector<double>& sorted, double centre) {
  std::vector<double> out;
  out.reserve(sorted.size());
  auto up = std::lower_bound(sorted.begin(), sorted.end(), centre);
  auto down = up;
  while (out.size() < sorted.size()) {
    const bool takes_up =
        down == sorted.begin() || (up != sorted.end() && *up - centre <= centre - *(down - 1));
    out.push_back(takes_up ? *up++ - centre : centre - *--down);
  }
  return out;
}

}  // namespace

std::vector<Peers> leave_one_out(std::span<const double> values) {
  std::vector<Peers> out(values.size());
  if (values.size() < 2) return out;
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> sorted;
  for (const std::size_t i : order)
    sorted.push_back(values[i]);
  std::map<double, std::vector<double>> by_centre;  // three at most
  for (std::size_t position = 0; position < order.size(); ++position) {
    Peers& peers = out[order[position]];
    peers.centre = median_without(sorted, position);
    const auto [known, is_new] = by_centre.try_emplace(peers.centre);
    if (is_new) known->second = deviations(sorted, peers.centre);
    const std::vector<double>& away = known->second;
    const double own = std::abs(sorted[position] - peers.centre);
    const auto mine = std::lower_bound(away.begin(), away.end(), own);
    peers.spread = median_without(away, static_cast<std::size_t>(mine - away.begin()));
  }
  return out;
}

double chance_of_share(std::uint64_t own, std::uint64_t total, std::uint64_t member_count) {
  if (member_count == 0 || own == 0) return 1;
  if (member_count == 1) return 1;
  const double p = 1 / static_cast<double>(member_count);
  const auto n = static_cast<double>(total);
  double sum = 0;
  for (std::uint64_t k = own; k <= total; ++k) {
    const auto x = static_cast<double>(k);
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                    x * std::log(p) + (n - x) * std::log1p(-p));
  }
  return std::min(sum, 1.0);
}

}  // namespace kansoku::stats
