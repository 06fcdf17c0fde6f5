// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/counters.h"

#include "diagnose/internal/steps/names.h"

namespace kansoku::diagnose {

std::map<std::int32_t, double> growth_of(const trace::Trace& trace, const JobData& job,
                                         std::string_view counter, Interval within) {
  struct Span {
    double first{-1}, last{0};
    std::int64_t first_ns{0}, last_ns{0};
  };
  const auto ranks = ranks_by_pid(job);
  std::map<std::int32_t, Span> spans;
  for (std::size_t i = 0; i < trace.counters.size(); ++i) {
    if (trace.counters.track[i].raw >= trace.tracks.size()) continue;
    const std::int64_t time_ns = trace.counters.time_ns[i];
    if (time_ns < within.begin_ns || time_ns > within.end_ns) continue;
    const trace::Track* track = &trace.tracks[trace.counters.track[i].raw];
    if (text_of(trace, track->name) != counter) continue;
    if (track->pid == 0 && track->parent.raw < trace.tracks.size())
      track = &trace.tracks[track->parent.raw];
    const auto rank = ranks.find(track->pid);
    if (rank == ranks.end()) continue;
    Span& span = spans[rank->second];
    if (span.first < 0) {
      span.first = trace.counters.value[i];
      span.first_ns = trace.counters.time_ns[i];
    }
    span.last = trace.counters.value[i];
    span.last_ns = trace.counters.time_ns[i];
  }
  std::map<std::int32_t, double> out;
  for (const auto& [rank, span] : spans) {
    if (span.last_ns > span.first_ns)
      out[rank] = (span.last - span.first) / static_cast<double>(span.last_ns - span.first_ns);
  }
  return out;
}

}  // namespace kansoku::diagnose
