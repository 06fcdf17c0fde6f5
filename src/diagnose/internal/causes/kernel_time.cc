// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/kernel_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "diagnose/internal/causes/findings.h"
#include "diagnose/internal/causes/localise.h"
#include "diagnose/internal/steps/limits.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/peers.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kCallsShown = 3;

double nothing_ms(const KernelUse& /*use*/) {
  return 0;
}

struct Kind {
  std::string_view name;
  double (*ms)(const KernelUse&);
  double (*also_ms)(const KernelUse&);  // goes with it, and costs as much
  std::string_view where, advice;
  bool is_called{false};     // by a function of the program
  bool is_of_memory{false};  // that a limit makes scarce
};
constexpr Kind kCalls{.name = "system_calls",
                      .ms = [](const KernelUse& use) { return use.calls_ms(); },
                      .also_ms = nothing_ms,
                      .where = words::kInCalls,
                      .advice = words::kAdviceCalls,
                      .is_called = true};
// Pages that had to go are fetched again.
constexpr Kind kReclaim{.name = "reclaim",
                        .ms = [](const KernelUse& use) { return use.reclaim_ms; },
                        .also_ms = [](const KernelUse& use) { return use.fault_ms(); },
                        .where = words::kInReclaim,
                        .advice = words::kAdviceReclaim,
                        .is_of_memory = true};
constexpr Kind kInterrupts{.name = "interrupts",
                           .ms = [](const KernelUse& use) { return use.interrupt_ms; },
                           .also_ms = nothing_ms,
                           .where = words::kInInterrupts,
                           .advice = words::kAdviceInterrupts};
constexpr std::array kKinds{kCalls, kReclaim, kInterrupts};

struct Longer {
  std::size_t rank{0};
  double ms{0}, peers_ms{0}, cost_ms{0};
};

/// By rank index: how much longer it works than its peers, whatever the reason.
std::vector<double> work_excess_ms(const Context& context) {
  std::vector<double> out;
  for (const auto& series : stats::excess_over_peers(work_series(context)))
    out.push_back(stats::mean(series));
  return out;
}

/// Ranks with more of the kernel's work than their peers, if it explains most of how much longer
/// they take. Whoever waits for others makes calls as well, and is not slower.
std::vector<Longer> longer_ranks(const Context& context, const Kind& kind,
                                 const std::vector<double>& excess_ms) {
  std::vector<double> values, all;
  for (const KernelUse& use : context.kernel.ranks) {
    values.push_back(kind.ms(use));
    all.push_back(kind.ms(use) + kind.also_ms(use));
  }
  const double least_ms = std::max(kExcessMinMs, kCostShareMin * context.mean_step_ms);
  const auto peers = stats::leave_one_out(values), all_peers = stats::leave_one_out(all);
  std::vector<Longer> out;
  for (std::size_t r = 0; r < values.size() && values.size() > 1; ++r) {
    const double more_ms = all[r] - all_peers[r].centre;
    if (values[r] - peers[r].centre >= least_ms && excess_ms[r] >= least_ms &&
        more_ms >= kMostShare * excess_ms[r])
      out.push_back({r, values[r], peers[r].centre, std::min(more_ms, excess_ms[r])});
  }
  return out;
}

std::string names_of_calls(const KernelUse& use) {
  std::vector<std::pair<double, std::string>> calls;
  for (const auto& [name, ms] : use.call_ms)
    calls.emplace_back(-ms, name);
  std::sort(calls.begin(), calls.end());
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(calls.size(), kCallsShown); ++i)
    shown.push_back(fmt::format("{} {:.1f} ms", calls[i].second, -calls[i].first));
  return fmt::format("{}", fmt::join(shown, ", "));
}

void add_memory_limit(const Context& context, std::size_t rank, Finding& finding) {
  const std::int32_t number = context.job.ranks[rank].rank;
  const auto all = read_limits(context.trace, context.job);
  const auto limits = all.find(number);
  if (limits == all.end()) return;
  finding.evidence.push_back(
      limits->second.memory_group.empty()
          ? fmt::format(words::kMemoryOfHost, number)
          : fmt::format(words::kMemoryLimit, number, limits->second.memory_group,
                        static_cast<double>(limits->second.memory_limit) / 1e6));
}

Finding describe(const Context& context, const Kind& kind, const std::vector<Longer>& ranks) {
  Finding finding;
  finding.kind = kind.name;
  finding.basis = Basis::kObservation;
  for (const Longer& longer : ranks) {
    const std::int32_t number = context.job.ranks[longer.rank].rank;
    finding.ranks.push_back(number);
    finding.cost_ms_per_step = std::max(finding.cost_ms_per_step, longer.cost_ms);
    const KernelUse& use = context.kernel.ranks[longer.rank];
    finding.evidence.push_back(fmt::format(
        words::kKernelOfRank, number, longer.ms, kind.where,
        kind.is_called ? fmt::format(" ({})", names_of_calls(use)) : "", longer.peers_ms));
    if (kind.also_ms(use) > 0)
      finding.evidence.push_back(fmt::format(words::kFaultsOfRank, subject(context, longer.rank),
                                             use.faults, use.system_ms, use.user_ms));
  }
  finding.share = finding.cost_ms_per_step / context.mean_step_ms;
  if (kind.is_of_memory) add_memory_limit(context, ranks.front().rank, finding);
  finding.evidence.emplace_back(kind.advice);
  return finding;
}

/// The function that makes the calls.
void add_caller(const Context& context, const std::vector<Longer>& ranks, const Options& options,
                Finding& finding) {
  std::vector<bool> culprits(context.job.ranks.size());
  for (const Longer& longer : ranks)
    culprits[longer.rank] = true;
  const Location location = locate_excess(context, culprits, std::nullopt, options);
  if (location.function.empty()) return;
  finding.function = location.function;
  finding.file = location.file;
  finding.line = location.line;
  finding.stack = location.stack;
  finding.evidence.insert(
      finding.evidence.end() - 1,
      fmt::format(words::kStackSamples, location.excess_ms, per_step(context), location.function));
}

/// Time that goes with page faults, as a [rank][step] table.
RankSeries fault_series(const Context& context) {
  RankSeries out;
  for (const KernelUse& use : context.kernel.ranks) {
    out.push_back(use.fault_parts);
    for (double& part : out.back())
      part *= use.fault_ms();
  }
  return out;
}

/// Part of a rank's processor time that is in its working time: it waits for others in the rest.
double working_part(const Context& context, std::size_t rank) {
  const KernelUse& use = context.kernel.ranks[rank];
  const double all_ms = use.user_ms + use.system_ms;
  if (!context.job.ranks[rank].main.is_known || !(all_ms > 0)) return 1;
  return std::min(stats::mean(context.times[rank].running_ms) / all_ms, 1.0);
}

}  // namespace

std::vector<Finding> find_kernel_time(const Context& context, const Options& options) {
  std::vector<Finding> out;
  if (context.kernel.ranks.empty()) return out;
  const std::vector<double> excess_ms = work_excess_ms(context);
  for (const Kind& kind : kKinds) {
    const std::vector<Longer> ranks = longer_ranks(context, kind, excess_ms);
    if (ranks.empty()) continue;
    out.push_back(describe(context, kind, ranks));
    if (kind.is_called) add_caller(context, ranks, options, out.back());
  }
  return out;
}

std::vector<bool> ranks_in_reclaim(const Context& context) {
  std::vector<bool> out(context.job.ranks.size());
  if (context.kernel.ranks.empty()) return out;
  for (const Longer& longer : longer_ranks(context, kReclaim, work_excess_ms(context)))
    out[longer.rank] = true;
  return out;
}

RankSeries work_without_faults(const Context& context) {
  return stats::without(work_series(context), fault_series(context));
}

RankSeries work_without_kernel(const Context& context) {
  if (context.kernel.ranks.empty()) return work_series(context);
  RankSeries kernel = fault_series(context);
  const auto add = [&](std::size_t rank, double more_ms) {
    for (double& ms : kernel[rank])
      ms += more_ms;
  };
  for (std::size_t r = 0; r < kernel.size(); ++r)
    add(r, context.kernel.ranks[r].outside_ms() * working_part(context, r));
  for (const Longer& longer : longer_ranks(context, kCalls, work_excess_ms(context)))
    add(longer.rank, longer.cost_ms);
  return stats::without(work_series(context), kernel);
}

}  // namespace kansoku::diagnose
