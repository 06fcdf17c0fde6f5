// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/profile/late_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "common/rng.h"
#include "common/time.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/intervals.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::uint32_t kLateResamples = 500;

/// [collective][rank], times of the rank's own clock.
struct Matched {
  std::vector<std::vector<std::int64_t>> begin_ns, end_ns;
  std::vector<std::int64_t> offset_ns;  // by rank: of its own clock
};

/// The n-th one of each name on each rank; names that not all ranks have equally often are left
/// out.
Matched match(std::span<const ProfiledRank> ranks, std::size_t& left_out) {
  std::vector<std::map<std::uint32_t, std::vector<const ProfiledCollective*>>> by_name(
      ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const ProfiledCollective& collective : ranks[r].collectives)
      by_name[r][collective.name].push_back(&collective);
  }
  Matched out;
  for (const auto& [name, of_first] : by_name.front()) {
    // clang 14 captures no structured binding without a name of its own.
    const auto is_like_first = [&wanted = name, count = of_first.size()](const auto& of_rank) {
      const auto known = of_rank.find(wanted);
      return known != of_rank.end() && known->second.size() == count;
    };
    const bool is_common = std::all_of(by_name.begin(), by_name.end(), is_like_first);
    if (!is_common) {
      left_out += of_first.size();
      continue;
    }
    for (std::size_t i = 0; i < of_first.size(); ++i) {
      auto& begins = out.begin_ns.emplace_back();
      auto& ends = out.end_ns.emplace_back();
      for (const auto& of_rank : by_name) {
        const ProfiledCollective& collective = *of_rank.at(name)[i];
        begins.push_back(collective.begin_ns);
        ends.push_back(collective.end_ns);
      }
    }
  }
  return out;
}

/// Shifts every rank's clock so that its collectives end with the first rank's, in the median.
double align(Matched& matched, std::size_t rank_count) {
  double worst_residual_ns = 0;
  matched.offset_ns.assign(rank_count, 0);
  for (std::size_t r = 1; r < rank_count; ++r) {
    std::vector<double> differences;
    for (const auto& ends : matched.end_ns)
      differences.push_back(static_cast<double>(ends[r] - ends[0]));
    const double offset_ns = stats::median(differences);
    matched.offset_ns[r] = static_cast<std::int64_t>(offset_ns);
    worst_residual_ns = std::max(worst_residual_ns, stats::kMadToSigma * stats::mad(differences));
    for (std::size_t i = 0; i < matched.begin_ns.size(); ++i) {
      matched.begin_ns[i][r] -= static_cast<std::int64_t>(offset_ns);
      matched.end_ns[i][r] -= static_cast<std::int64_t>(offset_ns);
    }
  }
  return worst_residual_ns;
}

/// How long a rank waits for the last one with nothing computed on its device beside it,
/// milliseconds: a delay that computation hides costs nothing.
double time_waiting(const Matched& matched, const std::vector<std::int64_t>& lasts_ns,
                    const ProfiledRank& rank, std::size_t index) {
  std::int64_t first_ns = matched.begin_ns.front()[index];  // on the aligned clock
  for (const auto& begins : matched.begin_ns)
    first_ns = std::min(first_ns, begins[index]);
  const std::int64_t last_ns = *std::max_element(lasts_ns.begin(), lasts_ns.end());
  std::vector<stats::Interval> waits, computing;
  for (std::size_t i = 0; i < lasts_ns.size(); ++i)
    waits.push_back({matched.begin_ns[i][index] - first_ns, lasts_ns[i] - first_ns});
  const std::int64_t base_ns = first_ns + matched.offset_ns[index];
  for (const Execution& one : rank.executions)
    if (one.activity == Activity::kGpuCompute && one.end_ns > base_ns)
      computing.push_back(
          {std::max<std::int64_t>(one.begin_ns - base_ns, 0), one.end_ns - base_ns});
  return static_cast<double>(stats::IntervalSet::of(std::move(waits))
                                 .subtract(stats::IntervalSet::of(std::move(computing)))
                                 .measure_ns({0, last_ns - first_ns})) /
         kNsPerMs;
}

/// Ranks that wait least: equally late ones wait for each other a little, the others for them.
std::vector<bool> least_waiting(const std::vector<double>& waits) {
  const auto [least, most] = std::minmax_element(waits.begin(), waits.end());
  std::vector<bool> out;
  for (const double wait : waits)
    out.push_back(wait <= *least + kLateAlikeShareMax * (*most - *least));
  return out;
}

/// True if each of these ranks waits less than any other.
bool are_apart(const std::vector<bool>& late, const std::vector<double>& waits) {
  double most_of_late = 0, least_of_others = std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < waits.size(); ++r) {
    if (late[r])
      most_of_late = std::max(most_of_late, waits[r]);
    else
      least_of_others = std::min(least_of_others, waits[r]);
  }
  return most_of_late < least_of_others;
}

/// Waits of all ranks in each collective: [collective][rank] in milliseconds.
struct Waits {
  std::vector<std::vector<double>> ms;
  std::vector<double> sums;            // by rank; those that computation hides as well
  std::vector<std::size_t> last_rank;  // by collective
  std::vector<std::int64_t> last_ns;
};

Waits waits_of(const Matched& matched, std::size_t rank_count) {
  Waits out;
  out.sums.assign(rank_count, 0);
  for (const auto& begins : matched.begin_ns) {
    const auto last = std::max_element(begins.begin(), begins.end());
    out.last_rank.push_back(static_cast<std::size_t>(last - begins.begin()));
    out.last_ns.push_back(*last);
    auto& row = out.ms.emplace_back();
    for (std::size_t r = 0; r < rank_count; ++r) {
      row.push_back(static_cast<double>(*last - begins[r]) / kNsPerMs);
      out.sums[r] += row[r];
    }
  }
  return out;
}

double support_of(const std::vector<bool>& late, const Waits& waits, std::uint64_t seed) {
  Rng rng(seed, 0x6c);
  std::uint32_t agree = 0;
  for (std::uint32_t i = 0; i < kLateResamples; ++i) {
    std::vector<double> sums(late.size(), 0);
    for (std::size_t n = 0; n < waits.ms.size(); ++n) {
      const auto& row = waits.ms[rng.below(waits.ms.size())];
      for (std::size_t r = 0; r < late.size(); ++r)
        sums[r] += row[r];
    }
    agree += are_apart(late, sums) ? 1 : 0;
  }
  return static_cast<double>(agree) / kLateResamples;
}

}  // namespace

LateRanks measure_late_ranks(std::span<const ProfiledRank> ranks, std::uint64_t seed) {
  LateRanks out;
  std::size_t left_out = 0;
  Matched matched = match(ranks, left_out);
  const std::size_t count = matched.begin_ns.size();
  if (left_out > 0) {
    out.notes.push_back(fmt::format(words::kCollectivesLeftOut, left_out));
  }
  if (count < kMatchedMin) {
    out.notes.push_back(fmt::format(words::kFewInCommon, count));
    return out;
  }
  out.matched_count = count;
  out.residual_ms = align(matched, ranks.size()) / kNsPerMs;
  const Waits waits = waits_of(matched, ranks.size());
  const std::vector<bool> late = least_waiting(waits.sums);
  out.support = support_of(late, waits, seed);
  std::size_t last_count = 0;
  for (const std::size_t r : waits.last_rank)
    last_count += late[r] ? 1 : 0;
  out.last_share = static_cast<double>(last_count) / static_cast<double>(count);
  double steps = 1, window_ms = 0;
  std::vector<double> own_ms, others_ms;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    (late[r] ? own_ms : others_ms).push_back(time_waiting(matched, waits.last_ns, ranks[r], r));
    if (!late[r]) continue;
    out.ranks.push_back(ranks[r].rank);
    steps = std::max(steps, static_cast<double>(ranks[r].steps.size()));
    window_ms =
        std::max(window_ms, static_cast<double>(ranks[r].end_ns - ranks[r].begin_ns) / kNsPerMs);
  }
  out.own_wait_ms = stats::mean(own_ms) / steps;
  out.peers_wait_ms = others_ms.empty() ? out.own_wait_ms : stats::mean(others_ms) / steps;
  out.cost_ms = out.peers_wait_ms - out.own_wait_ms;
  out.cost_share = window_ms > 0 ? out.cost_ms * steps / window_ms : 0;
  return out;
}

}  // namespace kansoku::diagnose
