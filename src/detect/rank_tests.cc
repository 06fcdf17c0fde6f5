// SPDX-License-Identifier: Apache-2.0
#include "detect/rank_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "common/numbers.h"
#include "detect/internal/thresholds.h"
#include "detect/thresholds.h"
#include "stats/peers.h"
#include "stats/summary.h"
#include "stats/thresholds.h"

namespace kansoku::detect {
namespace {

constexpr std::size_t kStationaryParts = 4;

double median_of(std::vector<double>& values) {
  if (values.empty()) return kNan;
  return stats::median(values);
}

/// Differences from the median of the other ranks in one step and column; NaN where missing. Of two
/// ranks each is the other's only peer.
void differences(const Cube& cube, std::size_t step, std::size_t column,
                 std::vector<double>& scratch, std::vector<double>& out) {
  const std::size_t ranks = cube.ranks.size();
  scratch.clear();
  out.assign(ranks, kNan);
  for (std::size_t r = 0; r < ranks; ++r) {
    const double value = cube.at(step, r, column);
    if (!std::isnan(value)) scratch.push_back(value);
  }
  // Alone it is its own peer.
  const std::vector<double> centres =
      scratch.size() == 1 ? scratch : stats::centres_of_others(scratch);
  std::size_t known = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const double value = cube.at(step, r, column);
    if (!std::isnan(value)) out[r] = value - centres[known++];
  }
}

/// The differences of all steps of a window in one column, by rank, without the missing ones.
std::vector<std::vector<double>> by_rank(const Cube& cube, Range window, std::size_t column) {
  std::vector<std::vector<double>> out(cube.ranks.size());
  std::vector<double> scratch, step_differences;
  for (std::size_t step = window.begin; step < window.end; ++step) {
    differences(cube, step, column, scratch, step_differences);
    for (std::size_t r = 0; r < out.size(); ++r)
      if (!std::isnan(step_differences[r])) out[r].push_back(step_differences[r]);
  }
  return out;
}

PeerEntry entry_of(const std::vector<double>& values, double scale, double offset) {
  if (values.empty()) return {};
  const double low = stats::quantile(values, 0.25) - offset;
  const double high = stats::quantile(values, 0.75) - offset;
  PeerEntry out;
  if (low > 0) out.persistent = low / scale;
  if (high < 0) out.persistent = high / scale;
  out.tail = std::max(0.0, stats::quantile(values, 0.9) - offset) / scale;
  return out;
}

double largest_time_median(const Cube& cube, std::span<const Column> columns, Range range) {
  double out = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].unit != "s") continue;
    const double middle = window_median(cube, range, c);
    if (middle > out) out = middle;
  }
  return out;
}

double learnt_cut(const std::vector<double>& maxima, double alpha) {
  if (maxima.size() >= kWindowsMin) return window_cut(maxima, alpha, kOddSpreads);
  const double largest = maxima.empty() ? 0 : *std::max_element(maxima.begin(), maxima.end());
  return std::max(kFarSpreads, kAboveLargest * largest);
}

}  // namespace

std::vector<Range> windows_of(Range range, std::size_t length, std::size_t stride) {
  std::vector<Range> out;
  if (length == 0 || stride == 0) return out;
  for (std::size_t begin = range.begin; begin + length <= range.end; begin += stride)
    out.push_back({begin, begin + length});
  return out;
}

double window_median(const Cube& cube, Range window, std::size_t column) {
  std::vector<double> values;
  for (std::size_t step = window.begin; step < window.end; ++step) {
    for (std::size_t r = 0; r < cube.ranks.size(); ++r) {
      const double value = cube.at(step, r, column);
      if (!std::isnan(value)) values.push_back(value);
    }
  }
  return median_of(values);
}

std::vector<double> peer_scales(const Cube& cube, std::span<const Column> columns, Range healthy) {
  std::vector<double> out(columns.size());
  const double time = largest_time_median(cube, columns, healthy);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::vector<double> sizes;
    for (const auto& values : by_rank(cube, healthy, c))
      for (const double value : values)
        sizes.push_back(std::fabs(value));
    const double spread = sizes.empty() ? 0 : stats::kMadToSigma * stats::median(sizes);
    const double middle = std::fabs(window_median(cube, healthy, c));
    const double matters =
        columns[c].unit == "s" ? kTimeShare * time : kOtherShare * (middle > 0 ? middle : 0);
    out[c] = std::max({spread, matters, columns[c].floor, 1e-12});
  }
  return out;
}

PeerWindow peer_window(const Cube& cube, Range window, std::span<const double> scales,
                       std::span<const double> offsets) {
  PeerWindow out;
  out.columns = cube.columns;
  out.entries.resize(cube.ranks.size() * cube.columns);
  for (std::size_t c = 0; c < cube.columns; ++c) {
    const auto values = by_rank(cube, window, c);
    for (std::size_t r = 0; r < values.size(); ++r) {
      const std::size_t at = r * cube.columns + c;
      out.entries[at] = entry_of(values[r], scales[c], offsets.empty() ? 0 : offsets[at]);
    }
  }
  return out;
}

std::vector<double> peer_offsets(const Cube& cube, Range range) {
  std::vector<double> out(cube.ranks.size() * cube.columns, 0.0);
  for (std::size_t c = 0; c < cube.columns; ++c) {
    const auto values = by_rank(cube, range, c);
    for (std::size_t r = 0; r < values.size(); ++r)
      if (!values[r].empty()) out[r * cube.columns + c] = stats::median(values[r]);
  }
  return out;
}

PeerModel learn_peers(const Cube& cube, std::span<const double> scales,
                      std::span<const Range> windows, double alpha,
                      std::span<const double> offsets) {
  PeerModel out;
  out.scales.assign(scales.begin(), scales.end());
  out.windows = static_cast<std::uint32_t>(windows.size());
  std::vector<std::vector<double>> persistent(cube.columns), tail(cube.columns);
  for (const Range& window : windows) {
    const PeerWindow entries = peer_window(cube, window, scales, offsets);
    for (std::size_t c = 0; c < cube.columns; ++c) {
      double most_persistent = 0, longest_tail = 0;
      for (std::size_t r = 0; r < cube.ranks.size(); ++r) {
        most_persistent = std::max(most_persistent, std::fabs(entries.at(r, c).persistent));
        longest_tail = std::max(longest_tail, entries.at(r, c).tail);
      }
      persistent[c].push_back(most_persistent);
      tail[c].push_back(longest_tail);
    }
  }
  for (std::size_t c = 0; c < cube.columns; ++c) {
    out.persistent.push_back(learnt_cut(persistent[c], alpha));
    out.tail.push_back(learnt_cut(tail[c], alpha));
  }
  return out;
}

PeerModel stricter(const PeerModel& model, const PeerModel& other) {
  if (model.empty()) return other;
  PeerModel out = model;
  for (std::size_t c = 0; c < std::min(out.scales.size(), other.scales.size()); ++c) {
    const double factor = other.scales[c] / out.scales[c];
    out.persistent[c] = std::max(out.persistent[c], other.persistent[c] * factor);
    out.tail[c] = std::max(out.tail[c], other.tail[c] * factor);
  }
  return out;
}

PeerVerdict judge_peers(const PeerWindow& window, std::size_t rank_count, const PeerModel& model,
                        bool with_tail) {
  PeerVerdict out;
  if (rank_count < 3) return out;
  for (std::size_t r = 0; r < rank_count; ++r) {
    for (std::size_t c = 0; c < window.columns; ++c) {
      const PeerEntry& entry = window.at(r, c);
      const double persistent = std::fabs(entry.persistent) / model.persistent[c];
      const double tail = with_tail ? entry.tail / model.tail[c] : 0;
      if (std::max(persistent, tail) <= out.excess) continue;
      out.excess = std::max(persistent, tail);
      out.column = c;
      out.is_tail = tail > persistent;
    }
  }
  if (out.excess <= 1) return out;
  std::vector<std::size_t> named;
  for (std::size_t r = 0; r < rank_count; ++r) {
    const PeerEntry& entry = window.at(r, out.column);
    const double excess = out.is_tail ? entry.tail / model.tail[out.column]
                                      : std::fabs(entry.persistent) / model.persistent[out.column];
    if (excess > 1 && excess >= stats::kTogetherShare * out.excess) named.push_back(r);
  }
  if (named.size() <= std::max<std::size_t>(1, rank_count / 4)) out.ranks = std::move(named);
  return out;
}

std::vector<SeldomRank> find_seldom(const Cube& cube, std::span<const Column> columns, Range range,
                                    double pace) {
  const std::size_t ranks = cube.ranks.size();
  if (ranks < 3 || !(pace > 0)) return {};
  std::map<std::size_t, std::pair<double, SeldomRank>> by_rank;  // with the mean excess
  std::vector<double> scratch, of_step;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].unit != "s") continue;
    stats::MemberSeries excess(ranks);
    for (std::size_t step = range.begin; step < range.end; ++step) {
      differences(cube, step, c, scratch, of_step);
      for (std::size_t r = 0; r < ranks; ++r)
        excess[r].push_back(std::isnan(of_step[r]) ? 0 : of_step[r]);
    }
    for (const stats::SeldomLong& one :
         stats::find_seldom_long(excess, stats::kLongStepMin * pace, std::vector<bool>(ranks))) {
      auto& [most, seldom] = by_rank[one.member];
      if (one.excess <= most) continue;
      most = one.excess;
      seldom = {one.member, c, {}};
      for (std::size_t step = range.begin; step < range.end; ++step)
        if (one.steps[step - range.begin]) seldom.steps.push_back(step);
    }
  }
  std::vector<SeldomRank> out;
  out.reserve(by_rank.size());
  for (auto& [rank, found] : by_rank)
    out.push_back(std::move(found.second));
  return out;
}

Stationarity check_stationarity(const Cube& cube, Range range, std::size_t column) {
  const double whole = window_median(cube, range, column);
  if (std::isnan(whole)) return {false, "the reference has no values"};
  std::vector<double> steps;
  for (std::size_t step = range.begin; step < range.end; ++step)
    if (const double middle = window_median(cube, {step, step + 1}, column); !std::isnan(middle))
      steps.push_back(middle);
  double low = stats::quantile(steps, 0.2), high = stats::quantile(steps, 0.8);
  const std::size_t part = std::max<std::size_t>(4, range.size() / kStationaryParts);
  for (const Range& window : windows_of(range, part, part)) {
    const double middle = window_median(cube, window, column);
    if (std::isnan(middle)) continue;
    low = std::min(low, middle);
    high = std::max(high, middle);
  }
  if (high - low <= kStationarySpread * std::fabs(whole)) return {};
  return {false, fmt::format("it is not steady, its steps swing between {:.2f} and {:.2f} times "
                             "their median",
                             low / whole, high / whole)};
}

}  // namespace kansoku::detect
