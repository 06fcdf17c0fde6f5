// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/throttled.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "diagnose/internal/steps/limits.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

void add_quota_advice(const std::map<std::int32_t, ProcessorLimits>& limits, std::int32_t rank,
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
  struct Held {
    double first{-1}, last{0};
    std::int64_t first_ns{0}, last_ns{0};
    [[nodiscard]] double share() const {
      return last_ns > first_ns ? (last - first) / static_cast<double>(last_ns - first_ns) : 0;
    }
  };
  const trace::Trace& trace = context.trace;
  const auto ranks = ranks_by_pid(context.job);
  std::map<std::int32_t, Held> spans;
  for (std::size_t i = 0; i < trace.counters.size(); ++i) {
    if (trace.counters.track[i].raw >= trace.tracks.size()) continue;
    const trace::Track* track = &trace.tracks[trace.counters.track[i].raw];
    if (text_of(trace, track->name) != "cpu throttled") continue;
    if (track->pid == 0 && track->parent.raw < trace.tracks.size())
      track = &trace.tracks[track->parent.raw];
    const auto rank = ranks.find(track->pid);
    if (rank == ranks.end()) continue;
    Held& span = spans[rank->second];
    if (span.first < 0) {
      span.first = trace.counters.value[i];
      span.first_ns = trace.counters.time_ns[i];
    }
    span.last = trace.counters.value[i];
    span.last_ns = trace.counters.time_ns[i];
  }
  std::vector<std::pair<double, std::int32_t>> order;  // most first
  for (const RankData& rank : context.job.ranks) {
    const auto span = spans.find(rank.rank);
    order.emplace_back(span == spans.end() ? 0 : -std::min(span->second.share(), 1.0), rank.rank);
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
