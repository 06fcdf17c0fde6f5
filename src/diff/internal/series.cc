// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/series.h"

#include <algorithm>
#include <set>
#include <utility>

#include "diff/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diff {

KeptSteps keep_steps(const Recording& recording) {
  const std::size_t steps = recording.step_count, ranks = recording.ranks.size();
  std::vector<double> means(steps);
  for (std::size_t s = 0; s < steps; ++s) {
    for (std::size_t r = 0; r < ranks; ++r)
      means[s] += recording.step_ms[r * steps + s] / static_cast<double>(ranks);
  }
  const double limit = kStallRatio * stats::median(means);
  const auto longer =
      std::count_if(means.begin(), means.end(), [&](double ms) { return ms > limit; });
  // Much that comes again and again is how the program runs, as where it waits in some steps alone.
  const bool are_rare =
      longer <= 1 || static_cast<double>(longer) <= kStallStepsMax * static_cast<double>(steps);
  KeptSteps out;
  double all = 0, kept = 0;
  for (const double ms : means) {
    const bool is_stall = are_rare && ms > limit;
    out.index.push_back(is_stall ? KeptSteps::kLeftOut : static_cast<std::uint32_t>(out.count));
    all += ms;
    if (is_stall) {
      ++out.stalls;
    } else {
      ++out.count;
      kept += ms;
    }
  }
  if (out.count > 0)
    out.stall_ms = all / static_cast<double>(steps) - kept / static_cast<double>(out.count);
  return out;
}

Series series_of(const Item* item, const Recording& recording, const KeptSteps& kept,
                 const CallTimes& times, std::optional<std::size_t> rank) {
  Series out;
  for (auto* values :
       {&out.calls, &out.ms, &out.lane_ms, &out.size, &out.common_ms, &out.expected_ms})
    values->assign(kept.count, 0);
  if (item == nullptr) return out;
  const double weight = rank ? 1 : 1 / static_cast<double>(recording.ranks.size());
  const double* expected = nullptr;
  std::uint32_t expected_of = UINT32_MAX;
  for (const Cell& cell : item->cells) {
    const std::size_t of_rank = cell.unit / recording.step_count;
    const std::uint32_t s = kept.index[cell.unit % recording.step_count];
    if (s == KeptSteps::kLeftOut || (rank && *rank != of_rank)) continue;
    out.calls[s] += weight * cell.calls;
    out.ms[s] += weight * cell.ms;
    out.lane_ms[s] += weight * cell.lane_ms;
    out.size[s] += weight * cell.size;
    out.call_count += cell.calls;
    if (expected_of != cell.shape) {
      auto found = times.find(item->shapes[cell.shape].text);
      if (found == times.end()) found = times.find(item->shapes[cell.shape].base);
      if (found == times.end()) found = times.find("*");
      expected = found == times.end() ? nullptr : &found->second;
      expected_of = cell.shape;
    }
    if (expected == nullptr) continue;
    out.common_ms[s] += weight * cell.ms;
    out.expected_ms[s] += weight * cell.calls * *expected;
  }
  return out;
}

std::vector<double> step_series(const std::vector<double>& by_unit, const Recording& recording,
                                const KeptSteps& kept) {
  std::vector<double> out(kept.count);
  const double weight = 1 / static_cast<double>(recording.ranks.size());
  for (std::size_t unit = 0; unit < recording.unit_count(); ++unit) {
    const std::uint32_t s = kept.index[unit % recording.step_count];
    if (s != KeptSteps::kLeftOut) out[s] += weight * by_unit[unit];
  }
  return out;
}

namespace {

struct Sum {
  double calls{0}, ms{0}, size{0};  // size: of one call, 0: unknown
};

using Sums = std::map<std::string, Sum>;

/// By shape; `is_base`: without the shapes of operators.
Sums sums_of(const std::vector<const Item*>& items, bool is_base = false) {
  Sums out;
  for (const Item* item : items) {
    if (item == nullptr) continue;
    for (const Cell& cell : item->cells) {
      const Shape& shape = item->shapes[cell.shape];
      Sum& sum = out[is_base ? shape.base : shape.text];
      sum.calls += cell.calls;
      sum.ms += cell.ms;
      sum.size = shape.size;
    }
  }
  return out;
}

bool have_sizes(const Sums& sums) {
  return std::all_of(sums.begin(), sums.end(), [](const auto& one) { return one.second.size > 0; });
}

bool share_a_shape(const Sums& a, const Sums& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& one) { return b.contains(one.first); });
}

}  // namespace

bool have_one_unit(const std::vector<const Item*>& before, const std::vector<const Item*>& after) {
  std::set<std::string_view> units;
  for (const auto* items : {&before, &after})
    for (const Item* item : *items) {
      if (item == nullptr) continue;
      for (const Cell& cell : item->cells)
        units.insert(item->shapes[cell.shape].unit);
    }
  return units.size() <= 1;
}

bool have_common_shape(const std::vector<const Item*>& before,
                       const std::vector<const Item*>& after) {
  return share_a_shape(sums_of(before), sums_of(after)) ||
         (!have_one_unit(before, after) &&
          share_a_shape(sums_of(before, true), sums_of(after, true)));
}

CallTimes common_times(const std::vector<const Item*>& before,
                       const std::vector<const Item*>& after) {
  CallTimes out;
  const auto add_common = [&](bool is_base) {
    const Sums a = sums_of(before, is_base), b = sums_of(after, is_base);
    for (const auto& [shape, sum] : a)
      if (b.contains(shape) && sum.ms > 0) out[shape] = sum.ms / sum.calls;
  };
  add_common(false);
  // One side does not say what its operators do: their kernels' own shapes are left.
  const bool is_one_unit = have_one_unit(before, after);
  if (out.empty() && !is_one_unit) add_common(true);
  if (!out.empty()) return out;
  const Sums a = sums_of(before), b = sums_of(after);
  double calls = 0, ms = 0, work = 0;
  for (const auto& [shape, sum] : a) {
    calls += sum.calls;
    ms += sum.ms;
    work += sum.calls * sum.size;
  }
  if (ms <= 0) return out;
  if (!is_one_unit || !have_sizes(a) || !have_sizes(b)) {
    out["*"] = ms / calls;
    return out;
  }
  for (const auto* side : {&a, &b})
    for (const auto& [shape, sum] : *side)
      out[shape] = ms / work * sum.size;
  return out;
}

std::vector<double> lane_factors(const Recording& recording, const KeptSteps& kept, Lane lane) {
  std::vector<double> out(kept.count, 1.0);
  double whole_ms = 0;
  for (const double ms : recording.step_ms)
    whole_ms += ms;
  if (lane == Lane::kDevice) {
    double device_ms = 0;
    for (const Item& item : recording.items)
      device_ms += item.lane == lane ? item.total_ms : 0;
    whole_ms = recording.device_clock_apart ? device_ms : std::min(whole_ms, device_ms);
  }
  std::vector<std::vector<double>> beside(kept.count);  // [step]: of each row
  std::size_t rows = 0;
  for (const Item& item : recording.items) {
    if (item.lane != lane || item.total_ms < kCommonShareMin * whole_ms) continue;
    const CallTimes own = common_times({&item}, {&item});
    const Series series = series_of(&item, recording, kept, own, std::nullopt);
    const auto present =
        std::count_if(series.ms.begin(), series.ms.end(), [](double ms) { return ms > 0; });
    if (static_cast<double>(present) < kInMostSteps * static_cast<double>(kept.count)) continue;
    ++rows;
    for (std::size_t s = 0; s < kept.count; ++s) {
      if (series.expected_ms[s] > 0)
        beside[s].push_back(series.common_ms[s] / series.expected_ms[s]);
    }
  }
  if (rows < kCommonRowsMin) return out;
  for (std::size_t s = 0; s < kept.count; ++s)
    out[s] = std::max(1e-6, stats::median(beside[s]));
  const double typical = stats::median(out);
  for (double& factor : out)
    factor = typical > 0 ? factor / typical : 1;
  return out;
}

bool is_exact(const Recording& recording) {
  std::size_t exact = 0, judged = 0;
  for (const Item& item : recording.items) {
    if (item.lane != Lane::kDevice || item.kind != Kind::kKernel) continue;
    std::map<std::uint32_t, std::pair<double, double>> range;  // by shape
    std::map<std::uint32_t, std::size_t> units;
    for (const Cell& cell : item.cells) {
      const double each = cell.ms / cell.calls;
      auto [found, is_new] = range.try_emplace(cell.shape, each, each);
      found->second = {std::min(found->second.first, each), std::max(found->second.second, each)};
      ++units[cell.shape];
    }
    for (const auto& [shape, ends] : range) {
      if (units[shape] < kStepsMin) continue;
      ++judged;
      if (ends.second - ends.first <= kExactSpread * ends.second) ++exact;
    }
  }
  return judged > 0 && static_cast<double>(exact) >= kExactShare * static_cast<double>(judged);
}

std::string usual_shape(const std::vector<const Item*>& items) {
  std::string best;
  double most = 0;
  for (const auto& [shape, sum] : sums_of(items)) {
    if (sum.calls > most) {
      most = sum.calls;
      best = shape;
    }
  }
  return best;
}

}  // namespace kansoku::diff
