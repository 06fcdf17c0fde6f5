// SPDX-License-Identifier: Apache-2.0
#include "diagnose/clocks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "diagnose/internal/steps/collectives.h"
#include "diagnose/internal/steps/job.h"
#include "stats/summary.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

/// No rank leaves these before all have entered.
bool joins_all(std::string_view op) {
  constexpr std::array<std::string_view, 6> kPrefixes{
      "allreduce", "allgather", "reduce_scatter", "reducescatter", "alltoall", "barrier"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [op](std::string_view prefix) { return op.starts_with(prefix); });
}

/// Bounds, from collectives, on the shift from the second host's times to the first's.
struct Tie {
  std::int64_t least_ns{std::numeric_limits<std::int64_t>::min()};
  std::int64_t most_ns{std::numeric_limits<std::int64_t>::max()};
  std::vector<double> leaves_ns;  // first host's less second host's

  [[nodiscard]] HostClock clock() const {
    HostClock out;
    out.message_count = 2 * leaves_ns.size();
    out.is_contradictory = most_ns < least_ns;
    out.shift_ns = static_cast<std::int64_t>(stats::median(leaves_ns));
    out.residual_ns = (least_ns - most_ns) / 2;
    if (out.is_contradictory) return out;
    out.shift_ns = std::clamp(out.shift_ns, least_ns, most_ns);
    out.residual_ns = std::max(out.shift_ns - least_ns, most_ns - out.shift_ns);
    return out;
  }
};
using Ties = std::map<std::pair<std::size_t, std::size_t>, Tie>;  // first < second

/// Times of one host in one collective: its last rank to enter, its first to leave.
struct Meeting {
  std::int64_t entered_ns{std::numeric_limits<std::int64_t>::min()};
  std::int64_t left_ns{std::numeric_limits<std::int64_t>::max()};
};

void add_instance(const JobData& job, const Instance& instance, Ties& ties) {
  std::map<std::size_t, Meeting> meetings;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const Arrival& arrival = instance.ranks[r];
    if (!arrival.is_executed) return;  // an issue returns before the operation is over
    Meeting& meeting = meetings[trace::host_of(job.ranks[r].pid)];
    meeting.entered_ns = std::max(meeting.entered_ns, arrival.arrive_ns);
    meeting.left_ns = std::min(meeting.left_ns, arrival.end_ns);
  }
  for (auto a = meetings.begin(); a != meetings.end(); ++a) {
    for (auto b = std::next(a); b != meetings.end(); ++b) {
      Tie& tie = ties[{a->first, b->first}];
      tie.most_ns = std::min(tie.most_ns, a->second.left_ns - b->second.entered_ns);
      tie.least_ns = std::max(tie.least_ns, a->second.entered_ns - b->second.left_ns);
      tie.leaves_ns.push_back(static_cast<double>(a->second.left_ns - b->second.left_ns));
    }
  }
}

}  // namespace

Result<std::vector<std::optional<HostClock>>> host_clocks(const trace::Trace& trace,
                                                          std::size_t host_count) {
  TRY(JobData job, read_job(trace));
  const Collectives collectives = match_collectives(job);
  Ties ties;
  for (const Instance& instance : collectives.instances) {
    if (instance.is_complete && instance.is_of_all && joins_all(job.op_names[instance.op]))
      add_instance(job, instance, ties);
  }
  std::vector<std::optional<HostClock>> clocks(host_count);
  if (host_count > 0) clocks.front() = HostClock{};
  for (;;) {
    std::optional<HostClock> surest;
    std::size_t host = 0;
    for (const auto& [hosts, tie] : ties) {
      const auto [a, b] = hosts;
      if (a >= host_count || b >= host_count || clocks[a].has_value() == clocks[b].has_value())
        continue;
      HostClock clock = tie.clock();
      const bool is_forward = clocks[a].has_value();
      const HostClock& known = is_forward ? *clocks[a] : *clocks[b];
      clock.shift_ns = known.shift_ns + (is_forward ? clock.shift_ns : -clock.shift_ns);
      clock.residual_ns += known.residual_ns;
      if (surest && surest->residual_ns <= clock.residual_ns) continue;
      surest = clock;
      host = is_forward ? b : a;
    }
    if (!surest) return clocks;
    clocks[host] = surest;
  }
}

}  // namespace kansoku::diagnose
