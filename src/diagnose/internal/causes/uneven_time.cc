// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/uneven_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/time.h"
#include "diagnose/internal/causes/findings.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::int64_t kWindowsMax = 10'000;  // longer recordings have longer windows
constexpr std::string_view kImportFile = "<frozen importlib";

/// When its scheduler events tell what the main thread of a rank does.
Interval seen(const RankData& rank, std::int64_t end_ns) {
  Interval out{kTimeMaxNs, 0};
  for (const IntervalSet* set : {&rank.main.running, &rank.main.runnable, &rank.main.blocked}) {
    if (set->empty()) continue;
    out.begin_ns = std::min(out.begin_ns, set->items().front().begin_ns);
    out.end_ns = std::max(out.end_ns, set->items().back().end_ns);
  }
  out.end_ns = std::min(out.end_ns, rank.exit_ns != 0 ? rank.exit_ns : end_ns);
  return out;
}

/// When the main thread of a rank was last seen to import a module; 0: never.
std::int64_t last_import_ns(const trace::Trace& trace, const RankData& rank) {
  std::map<trace::StackId, bool> imports;
  std::int64_t last_ns = 0;
  for (const ThreadSample& sample : rank.samples) {
    const auto [known, is_new] = imports.try_emplace(sample.stack);
    if (is_new) {
      const auto frames = frames_of(trace, sample.stack);
      known->second = std::any_of(frames.begin(), frames.end(), [&](const trace::Frame& frame) {
        return text_of(trace, frame.file).starts_with(kImportFile);
      });
    }
    if (known->second) last_ns = std::max(last_ns, sample.time_ns);
  }
  return last_ns;
}

/// How each rank spends its windows, in milliseconds: [rank][window].
struct TimeUse {
  RankSeries busy;    // all threads on processors, together
  RankSeries asleep;  // the main thread
};

TimeUse time_use(const Context& context) {
  TimeUse use;
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r) {
    const RankData& rank = context.job.ranks[r];
    std::vector<double> busy, asleep;
    for (const Interval& window : context.steps.ranks[r]) {
      std::int64_t ns = rank.main.running.measure_ns(window);
      for (const IntervalSet& helper : rank.helpers_running)
        ns += helper.measure_ns(window);
      busy.push_back(static_cast<double>(ns) / kNsPerMs);
      asleep.push_back(static_cast<double>(rank.main.blocked.measure_ns(window)) / kNsPerMs);
    }
    use.busy.push_back(std::move(busy));
    use.asleep.push_back(std::move(asleep));
  }
  return use;
}

std::vector<double> means_of(const RankSeries& series) {
  std::vector<double> out;
  for (const auto& rank : series)
    out.push_back(stats::mean(rank));
  return out;
}

/// Mean milliseconds a window as a share of the time, as text.
std::string percent(const Context& context, double ms) {
  return fmt::format("{:.0f} %", 100 * ms / context.mean_step_ms);
}

/// "processors for 62 % of the time, its peers for 16 %; ...": of the rank with index `r`.
std::string comparison(const Context& context, const std::vector<double>& busy,
                       const std::vector<double>& asleep, std::size_t r) {
  return fmt::format(words::kTimeShares, percent(context, busy[r]),
                     percent(context, mean_of_others(busy, r)), percent(context, asleep[r]),
                     percent(context, mean_of_others(asleep, r)));
}

Finding describe_uneven_time(const Context& context, const stats::Outlier& outlier,
                             const std::vector<double>& busy, const std::vector<double>& asleep) {
  const std::size_t r = outlier.member;
  const double peers = mean_of_others(busy, r);
  Finding finding;
  finding.kind = "uneven_time";
  finding.ranks = {context.job.ranks[r].rank};
  finding.cost_ms_per_step = outlier.excess;
  finding.share = std::min(outlier.excess / context.mean_step_ms, 1.0);
  finding.confidence = finding.rank_confidence = outlier.confidence;
  finding.evidence.push_back(
      fmt::format(words::kComparedByTime, context.steps.count(), context.mean_step_ms));
  finding.evidence.push_back(
      fmt::format(words::kThreadsHave, comparison(context, busy, asleep, r),
                  peers > 0 ? fmt::format(words::kTimesTheWork, busy[r] / peers) : ""));
  return finding;
}

/// The command of a rank's process without its digits, which may tell the rank; empty: unknown.
std::string command_without_digits(const trace::Trace& trace, std::int32_t pid) {
  for (const trace::Process& process : trace.processes) {
    if (process.pid != pid) continue;
    std::string command(trace.str(process.cmdline));
    std::erase_if(command, [](char c) { return c >= '0' && c <= '9'; });
    return command;
  }
  return {};
}

/// Ranks whose command differs from the one that all others have.
std::vector<bool> with_another_command(const Context& context) {
  std::vector<std::string> commands;
  for (const RankData& rank : context.job.ranks)
    commands.push_back(command_without_digits(context.trace, rank.pid));
  std::map<std::string_view, std::size_t> counts;
  for (const std::string& command : commands)
    ++counts[command];
  std::vector<bool> out;
  for (const std::string& command : commands)
    out.push_back(!command.empty() && counts[command] == 1 && counts.size() == 2 &&
                  commands.size() > 2);
  return out;
}

}  // namespace

StepTable time_windows(const trace::Trace& trace, const JobData& job) {
  Interval common{0, kTimeMaxNs};
  for (const RankData& rank : job.ranks) {
    if (!rank.main.is_known) return {};
    const Interval own = seen(rank, job.end_ns);
    common.begin_ns = std::max({common.begin_ns, own.begin_ns, last_import_ns(trace, rank)});
    common.end_ns = std::min(common.end_ns, own.end_ns);
  }
  if (job.stopped_ns) common.end_ns = std::min(common.end_ns, *job.stopped_ns);
  if (common.end_ns <= common.begin_ns) return {};
  const std::int64_t span_ns = common.end_ns - common.begin_ns;
  const std::int64_t window_ns =
      std::max(static_cast<std::int64_t>(kWindowMs * kNsPerMs), span_ns / kWindowsMax);
  const std::int64_t count = span_ns / window_ns;
  if (job.ranks.empty() || count < std::int64_t{kWindowCountMin}) return {};
  StepTable table;
  table.found_by = kFoundByTime;
  std::vector<Interval> windows;
  for (std::int64_t i = 0; i < count; ++i)
    windows.push_back({common.begin_ns + i * window_ns, common.begin_ns + (i + 1) * window_ns});
  table.ranks.assign(job.ranks.size(), windows);
  return table;
}

std::vector<Finding> find_uneven_time(const Context& context, const Options& options,
                                      std::vector<std::string>& notes) {
  const std::size_t rank_count = context.job.ranks.size();
  if (rank_count < 2) return {};
  const TimeUse use = time_use(context);
  const std::vector<double> busy = means_of(use.busy), asleep = means_of(use.asleep);
  stats::OutlierTest test = excess_options(context, options);
  test.least = kUnevenTimeShareMin * context.mean_step_ms;
  std::vector<Finding> findings;
  std::size_t note_count = 0;
  const std::vector<bool> is_another = with_another_command(context);
  const auto note = [&](std::size_t r) {
    ++note_count;
    notes.push_back(fmt::format(words::kTimeNotBlamed, context.job.ranks[r].rank,
                                comparison(context, busy, asleep, r),
                                is_another[r] ? words::kRunsAnotherCommand : words::kMayHave));
  };
  const std::vector<bool> none(rank_count);
  const auto outliers = stats::find_outliers(stats::excess_over_peers(use.busy), none, test);
  // Beside a chief that does little, all workers stand out: an outlier has to from all others.
  double busiest = 0;
  for (std::size_t r = 0; r < rank_count; ++r) {
    const bool is_outlier = std::any_of(outliers.begin(), outliers.end(),
                                        [r](const stats::Outlier& o) { return o.member == r; });
    if (!is_outlier) busiest = std::max(busiest, busy[r]);
  }
  for (const stats::Outlier& outlier : outliers) {
    const std::size_t r = outlier.member;
    if (busy[r] < kUnevenTimeRatioMin * busiest) continue;
    // Two cannot vote: one works for the other, or with it.
    if (rank_count == 2 || is_another[r]) {
      note(r);
    } else {
      findings.push_back(describe_uneven_time(context, outlier, busy, asleep));
    }
  }
  if (!findings.empty() || note_count > 0) return findings;
  for (const stats::Outlier& outlier :
       stats::find_outliers(stats::excess_over_peers(use.asleep), none, test))
    note(outlier.member);
  if (note_count > 0) return {};
  const auto range = [&](const std::vector<double>& ms) {
    const auto [least, most] = std::minmax_element(ms.begin(), ms.end());
    return fmt::format("{} to {}", percent(context, *least), percent(context, *most));
  };
  notes.push_back(fmt::format(words::kTimeAlike, range(busy), range(asleep)));
  return {};
}

}  // namespace kansoku::diagnose
