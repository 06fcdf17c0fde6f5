// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/throttled.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "diagnose/internal/names.h"

namespace kansoku::diagnose {
namespace {

constexpr double kThrottledShareMin = 0.05;
constexpr double kThrottledRatioMin = 4;

}  // namespace

std::optional<Finding> find_throttled(const Evidence& evidence, const Options&) {
  struct Held {
    double first{-1}, last{0};
    std::int64_t first_ns{0}, last_ns{0};
    [[nodiscard]] double share() const {
      return last_ns > first_ns ? (last - first) / static_cast<double>(last_ns - first_ns) : 0;
    }
  };
  const trace::Trace& trace = evidence.trace;
  const auto ranks = ranks_by_pid(evidence.job);
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
  std::int32_t worst = trace::kNoRank;
  double most = 0, second = 0;
  for (const auto& [rank, span] : spans) {
    const double share = span.share();
    if (share > most) {
      second = most;
      most = share;
      worst = rank;
    } else {
      second = std::max(second, share);
    }
  }
  if (most < kThrottledShareMin || most < kThrottledRatioMin * second) return std::nullopt;
  Finding finding;
  finding.kind = "cpu_throttled";
  finding.ranks = {worst};
  finding.share = std::min(most, 1.0);
  finding.cost_ms_per_step = finding.share * evidence.mean_step_ms;
  finding.confidence = finding.rank_confidence = 1;
  finding.evidence.push_back(
      fmt::format("the processor quota of its control group held it back for {:.0f} % of the time, "
                  "its peers for "
                  "at most {:.0f} %",
                  most * 100, second * 100));
  finding.evidence.push_back(
      "next: raise cpu.max (cpu.cfs_quota_us) of its control group, or its "
      "container's CPU limit");
  return finding;
}

}  // namespace kansoku::diagnose
