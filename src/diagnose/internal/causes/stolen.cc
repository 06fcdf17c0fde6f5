// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/stolen.h"

#include <fmt/format.h>

#include <algorithm>

#include "diagnose/internal/steps/counters.h"
#include "diagnose/internal/steps/limits.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {

std::optional<Finding> find_stolen(const Context& context) {
  const auto limits = read_limits(context.trace, context.job);
  Finding finding;
  std::int32_t most_rank = 0;
  std::uint64_t processors = 0;
  for (const auto& [rank, growth] : growth_of(context.trace, context.job, "stolen time")) {
    const auto host = limits.find(rank);
    if (host == limits.end() || host->second.host_count == 0) continue;
    // The counter is the sum over the host's processors.
    const double share = std::min(growth / static_cast<double>(host->second.host_count), 1.0);
    if (!(share >= kToldShareMin)) continue;
    finding.ranks.push_back(rank);
    if (share <= finding.share) continue;
    finding.share = share;
    most_rank = rank;
    processors = host->second.host_count;
  }
  if (finding.ranks.empty()) return std::nullopt;
  finding.kind = "stolen";
  finding.cost_ms_per_step = finding.share * context.mean_step_ms;
  finding.basis = Basis::kObservation;
  finding.evidence.push_back(
      fmt::format(words::kStolen, finding.share * 100, processors, most_rank));
  finding.evidence.emplace_back(words::kAdviceStolen);
  return finding;
}

}  // namespace kansoku::diagnose
