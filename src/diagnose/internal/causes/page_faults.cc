// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/page_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "diagnose/internal/causes/findings.h"
#include "diagnose/internal/causes/kernel_time.h"
#include "diagnose/internal/causes/localise.h"
#include "diagnose/internal/steps/limits.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/peers.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kRanksShown = 4;

bool is_on_one_host(const JobData& job) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), [&](const RankData& rank) {
    return trace::host_of(rank.pid) == trace::host_of(job.ranks.front().pid);
  });
}

std::string shown(const Context& context, std::size_t r) {
  const KernelUse& use = context.kernel.ranks[r];
  return fmt::format(words::kFaultsOfRank, subject(context, r), use.faults, use.system_ms,
                     use.user_ms);
}

/// A step without faults. Where the ranks use up the processors of their host, all of the processor
/// time that goes with faults is shared out; else the slowest rank of each step decides.
double step_without_ms(const Context& context) {
  double processor_ms = 0, fault_ms = 0;
  for (const KernelUse& use : context.kernel.ranks) {
    processor_ms += use.user_ms + use.system_ms;
    fault_ms += use.fault_ms();
  }
  const auto limits = read_limits(context.trace, context.job);
  const double processors = limits.size() == context.job.ranks.size()
                                ? static_cast<double>(limits.begin()->second.host_count)
                                : 0;
  const bool is_full = is_on_one_host(context.job) && processors > 0 &&
                       processor_ms >= kNearlyAllShare * processors * context.mean_step_ms;
  const double saved_ms = is_full ? fault_ms / processors
                                  : stats::mean_of_greatest(work_series(context)) -
                                        stats::mean_of_greatest(work_without_faults(context));
  return std::max(context.mean_step_ms - std::max(saved_ms, 0.0), 0.0);
}

/// The place that most faults of the named ranks are in.
struct FaultPlace {
  std::string name{};  // "in the heap"; empty: none were sampled
  double share{0};
};
FaultPlace place_of_most(const Context& context, const std::vector<std::size_t>& named) {
  std::map<std::string, double> places;
  double all = 0;
  for (const std::size_t r : named) {
    for (const auto& [name, faults] : context.kernel.ranks[r].fault_places) {
      places[name] += faults;
      all += faults;
    }
  }
  FaultPlace most;
  for (const auto& [name, faults] : places) {
    if (faults > most.share * all) most = {name, faults / all};
  }
  return most;
}

/// Without samples, or where no place has most, for the likeliest.
std::string_view advice_of(const FaultPlace& place) {
  if (place.share < kMostShare) return words::kAdviceFaults;
  return place.name == "in files"           ? words::kAdviceFaultsInFiles
         : place.name == "in mapped memory" ? words::kAdviceFaultsInMapped
                                            : words::kAdviceFaults;
}

/// The function whose faults they are: as near as faults between stack samples tell, and where
/// peers have fewer the one within it that takes longer than theirs, if that holds most of it.
Location function_of(const Context& context, const std::vector<std::size_t>& named,
                     const Options& options) {
  std::vector<bool> culprits(context.job.ranks.size());
  for (const std::size_t r : named)
    culprits[r] = true;
  Location by_faults = locate_faults(context, culprits, options);
  if (by_faults.function.empty() || named.size() == culprits.size()) return by_faults;
  Location by_time = locate_excess(context, culprits, std::nullopt, options);
  const bool is_within = std::find(by_time.stack.begin(), by_time.stack.end(),
                                   by_faults.function) != by_time.stack.end();
  if (!is_within || by_time.excess_ms < kMostShare * by_faults.excess_ms) return by_faults;
  by_time.excess_ms = std::min(by_time.excess_ms, by_faults.excess_ms);
  return by_time;
}

void add_function(const Context& context, const Location& location, Finding& finding) {
  if (location.function.empty()) return;
  finding.function = location.function;
  finding.file = location.file;
  finding.line = location.line;
  finding.stack = location.stack;
  finding.evidence.push_back(
      fmt::format(words::kFaultsIn, location.excess_ms, per_step(context), location.function));
}

}  // namespace

double fault_doubt_ms(const Context& context) {
  double least = 1e300, most = 0;
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r) {
    least = std::min(least, context.kernel.fault_ms(r));
    most = std::max(most, context.kernel.fault_ms(r));
  }
  return most > least ? kToleranceShare * (most - least) : 0;
}

std::optional<Finding> find_page_faults(const Context& context, const Options& options) {
  const KernelUses& uses = context.kernel;
  if (uses.ranks.empty()) return std::nullopt;
  const auto least = std::min_element(
      uses.ranks.begin(), uses.ranks.end(),
      [](const KernelUse& a, const KernelUse& b) { return a.fault_system_ms < b.fault_system_ms; });
  const double least_ms = least->fault_system_ms;
  const double least_system_ms = std::min_element(uses.ranks.begin(), uses.ranks.end(),
                                                  [](const KernelUse& a, const KernelUse& b) {
                                                    return a.system_ms < b.system_ms;
                                                  })
                                     ->system_ms;
  const double excess_min_ms = std::max(kExcessMinMs, kCostShareMin * context.mean_step_ms);
  const bool is_common = least_ms >= std::max(kExcessMinMs, kToldShareMin * context.mean_step_ms);
  Finding finding;
  finding.kind = "page_faults";
  std::vector<std::size_t> named;
  const std::vector<bool> in_reclaim = ranks_in_reclaim(context);
  for (std::size_t r = 0; r < uses.ranks.size(); ++r) {
    const KernelUse& use = uses.ranks[r];
    // The price of a fault may be wrong: the rank's system time has to be longer, too.
    const bool is_sure = use.is_sampled || use.system_ms - least_system_ms >= excess_min_ms;
    const bool is_more = is_sure && use.fault_system_ms - least_ms >= excess_min_ms;
    if (!in_reclaim[r] && (is_common || is_more)) named.push_back(r);
  }
  if (named.empty()) return std::nullopt;
  for (const std::size_t r : named)
    finding.ranks.push_back(context.job.ranks[r].rank);
  const double without_ms = step_without_ms(context);
  finding.cost_ms_per_step = context.mean_step_ms - without_ms;
  finding.share = finding.cost_ms_per_step / context.mean_step_ms;
  finding.basis = Basis::kObservation;
  std::stable_sort(named.begin(), named.end(), [&](std::size_t a, std::size_t b) {
    return uses.ranks[a].faults > uses.ranks[b].faults;
  });
  for (std::size_t i = 0; i < std::min(named.size(), kRanksShown); ++i)
    finding.evidence.push_back(shown(context, named[i]));
  if (!is_common)
    finding.evidence.push_back(
        shown(context, static_cast<std::size_t>(least - uses.ranks.begin())));
  const FaultPlace place = place_of_most(context, named);
  if (!place.name.empty())
    finding.evidence.push_back(fmt::format(words::kFaultPlaces, place.share * 100, place.name));
  add_function(context, function_of(context, named, options), finding);
  finding.evidence.push_back(
      uses.knows_user ? fmt::format(words::kFaultPrice, uses.fault_us, uses.fault_user_us)
                      : fmt::format(words::kFaultPriceInKernel, uses.fault_us));
  finding.evidence.push_back(fmt::format(words::kStepWithoutFaults,
                                         uses.knows_user ? "about" : "at most", without_ms,
                                         context.mean_step_ms));
  finding.evidence.emplace_back(advice_of(place));
  return finding;
}

}  // namespace kansoku::diagnose
