// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/throttled.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "diagnose/internal/steps/counters.h"
#include "diagnose/internal/steps/limits.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

void add_quota_advice(const std::map<std::int32_t, Limits>& limits, std::int32_t rank,
                      Finding& finding) {
  const auto found = limits.find(rank);
  if (found != limits.end() && !found->second.quota_group.empty()) {
    finding.evidence.push_back(
        fmt::format(words::kQuota, found->second.quota_cpus, found->second.quota_group));
  }
  finding.evidence.emplace_back(words::kAdviceQuota);
}

}  // namespace

std::optional<Finding> find_throttled(const Context& context, const Options&) {
  const trace::Trace& trace = context.trace;
  const auto shares = growth_of(trace, context.job, "cpu throttled");
  std::vector<std::pair<double, std::int32_t>> order;  // most first
  for (const RankData& rank : context.job.ranks) {
    const auto share = shares.find(rank.rank);
    order.emplace_back(share == shares.end() ? 0 : -std::min(share->second, 1.0), rank.rank);
  }
  std::stable_sort(order.begin(), order.end());
  const auto share_of = [&](std::size_t i) { return i < order.size() ? -order[i].first : 0.0; };
  // Those that stand out from the rest; maybe all.
  std::size_t count = 0;
  while (share_of(count) >= kToldShareMin) {
    ++count;
    if (share_of(count - 1) >= kThrottledRatioMin * share_of(count)) break;
  }
  if (count == 0 || share_of(count - 1) < kThrottledRatioMin * share_of(count)) return std::nullopt;
  Finding finding;
  finding.kind = "cpu_throttled";
  for (std::size_t i = 0; i < count; ++i)
    finding.ranks.push_back(order[i].second);
  std::sort(finding.ranks.begin(), finding.ranks.end());
  finding.share = share_of(0);
  finding.cost_ms_per_step = finding.share * context.mean_step_ms;
  finding.basis = Basis::kObservation;
  finding.evidence.push_back(fmt::format(
      words::kThrottled, count == 1 ? "it" : fmt::format(words::kTheseRanks, order[0].second),
      share_of(0) * 100,
      count == order.size() ? "" : fmt::format(words::kThrottledOthers, share_of(count) * 100)));
  add_quota_advice(read_limits(trace, context.job), order[0].second, finding);
  return finding;
}

}  // namespace kansoku::diagnose
