// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/contention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "common/time.h"
#include "diagnose/internal/causes/findings.h"
#include "diagnose/internal/steps/limits.h"
#include "diagnose/internal/steps/processors.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

constexpr std::uint64_t kContentionStream = 0x9e3779b97f4a7c15;
constexpr std::size_t kTakersMax = 4;  // named in a finding

/// Behind whom a thread queues.
enum class Side : std::uint8_t {
  kOutside,  // processes that are no part of the job
  kJob,      // the job's own
  kIdle,     // nobody: held back, or not yet switched in
  kUnknown,  // threads of which the recording does not say what they belong to
};
constexpr std::size_t kSideCount = 4;

/// The time that one rank queues in steps: its main thread outside of communication, any of its
/// threads while a transfer is under way, each instant once.
struct Queueing {
  std::array<std::vector<double>, kSideCount> ms;  // [side][step]
  std::map<std::int32_t, double> outside_ms;       // by process, in all
  std::map<std::int32_t, double> job_ms;           // by thread of the job, in all
  [[nodiscard]] double mean(Side side) const {
    return stats::mean(ms[static_cast<std::size_t>(side)]);
  }
  [[nodiscard]] double mean() const {
    return mean(Side::kOutside) + mean(Side::kJob) + mean(Side::kIdle) + mean(Side::kUnknown);
  }
};

/// Queueing of all ranks, read once.
struct Queues {
  std::vector<Queueing> ranks;
  ThreadNames names;
};

/// A stretch of waiting that counts.
struct Piece {
  Interval time;
  std::uint32_t cpu{0};
};

void add_pieces(const std::vector<QueueWait>& waits, const IntervalSet& counted,
                std::vector<Piece>& pieces) {
  for (const QueueWait& wait : waits) {
    const IntervalSet inside = counted.within(wait.time);
    for (const Interval& part : inside.items())
      pieces.push_back({part, wait.cpu});
  }
}

Queueing queueing_of(const Context& context, const ProcessorUse& use, const ThreadNames& names,
                     std::size_t r) {
  Queueing out;
  for (auto& series : out.ms)
    series.resize(context.steps.count());
  const RankData& rank = context.job.ranks[r];
  const auto& sets = context.phases[r].sets;
  const IntervalSet& transfer = sets[static_cast<std::size_t>(Phase::kTransfer)];
  std::vector<Piece> pieces;
  add_pieces(rank.main.queue_waits, sets[static_cast<std::size_t>(Phase::kRunnable)], pieces);
  add_pieces(rank.main.queue_waits, transfer, pieces);
  add_pieces(rank.helper_waits, transfer, pieces);
  std::vector<Interval> all;
  all.reserve(pieces.size());
  for (const Piece& piece : pieces)
    all.push_back(piece.time);
  const IntervalSet counted = IntervalSet::of(std::move(all));
  // Threads that wait at once share the instant among those that have their processors.
  double sum_ns = 0;
  for (const Piece& piece : pieces)
    sum_ns += static_cast<double>(piece.time.end_ns - piece.time.begin_ns);
  const auto& steps = context.steps.ranks[r];
  const Interval whole{steps.front().begin_ns, steps.back().end_ns};
  const double scale =
      sum_ns > 0 ? static_cast<double>(counted.measure_ns(whole)) / sum_ns / kNsPerMs : 0;
  std::map<std::int32_t, std::int64_t> users;
  for (const Piece& piece : pieces) {
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), piece.time.begin_ns,
                         [](std::int64_t t, const Interval& step) { return t < step.begin_ns; });
    const std::size_t step =
        after == steps.begin() ? 0 : static_cast<std::size_t>(after - steps.begin() - 1);
    users.clear();
    use.add_users(rank.pid, piece.cpu, piece.time, users);
    for (const auto& [tid, ns] : users) {
      const double ms = static_cast<double>(ns) * scale;
      const std::int32_t pid = names.process_of(tid);
      const bool is_job = context.job.pids.contains(pid);
      const Side side = tid == 0               ? Side::kIdle
                        : !names.is_known(tid) ? Side::kUnknown
                        : is_job               ? Side::kJob
                                               : Side::kOutside;
      out.ms[static_cast<std::size_t>(side)][step] += ms;
      if (side == Side::kOutside) out.outside_ms[pid] += ms;
      if (side == Side::kJob) out.job_ms[tid] += ms;
    }
  }
  return out;
}

Queues read_queues(const Context& context) {
  const ProcessorUse use(context.trace);
  Queues queues{{}, ThreadNames(context.trace)};
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r)
    queues.ranks.push_back(queueing_of(context, use, queues.names, r));
  return queues;
}

/// "stress (pid 42) 18.0 ms, the job itself 3.1 ms": mean milliseconds a step of `ranks` (indices).
std::string takers_text(const Context& context, const Queues& queues,
                        const std::vector<std::size_t>& ranks) {
  const double scale = 1.0 / static_cast<double>(ranks.size() * context.steps.count());
  struct Program {
    double ms{0};
    std::set<std::int32_t> pids;
  };
  std::map<std::string, Program> programs;
  std::array<double, kSideCount> sides{};
  for (const std::size_t r : ranks) {
    for (const auto& [pid, ms] : queues.ranks[r].outside_ms) {
      const std::string_view job = queues.names.job_of(pid), name = queues.names.name_of(pid);
      Program& program = programs[!job.empty()   ? fmt::format("job {}", job)
                                  : name.empty() ? words::kAProcess
                                                 : std::string(name)];
      program.ms += ms * scale;
      program.pids.insert(pid);
    }
    for (std::size_t side = 0; side < kSideCount; ++side)
      sides[side] +=
          queues.ranks[r].mean(static_cast<Side>(side)) / static_cast<double>(ranks.size());
  }
  std::vector<std::pair<double, std::string>> order;
  order.reserve(programs.size());
  for (const auto& [name, program] : programs)
    order.emplace_back(-program.ms, name);
  std::sort(order.begin(), order.end());
  const double all = std::accumulate(sides.begin(), sides.end(), 0.0);
  std::vector<std::string> parts;
  double named = 0;
  for (const auto& [negative_ms, name] : order) {
    if (parts.size() == kTakersMax || -negative_ms < kToldShareMin * all) break;
    const auto& pids = programs[name].pids;
    parts.push_back(fmt::format("{} ({}) {:.1f} ms", name,
                                pids.size() == 1
                                    ? fmt::format("pid {}", trace::pid_on_host(*pids.begin()))
                                    : fmt::format("{} processes", pids.size()),
                                -negative_ms));
    named -= negative_ms;
  }
  const double rest = sides[static_cast<std::size_t>(Side::kOutside)] - named;
  const auto add = [&](double ms, std::string_view who) {
    if (ms >= kToldShareMin * all) parts.push_back(fmt::format("{} {:.1f} ms", who, ms));
  };
  add(rest, words::kOtherProcesses);
  add(sides[static_cast<std::size_t>(Side::kJob)], words::kJobItself);
  add(sides[static_cast<std::size_t>(Side::kUnknown)], words::kUnnamedThreads);
  add(sides[static_cast<std::size_t>(Side::kIdle)], "nobody");
  return fmt::format(words::kTakers, fmt::join(parts, ", "));
}

/// A rank must queue for longer than its peers do anyway: where all share processors that is much,
/// and differs; where each has its own, little is a sign.
double contention_threshold(const Context& context, const RankSeries& runnable) {
  std::vector<double> means;
  for (const auto& rank : runnable)
    means.push_back(stats::mean(rank));
  const double least = std::max(kExcessMinMs, kExcessShareMin * context.median_step_ms);
  const double most = std::max(least, kContentionShareMin * context.median_step_ms);
  return std::clamp(stats::median(means), least, most);
}

void find_above_peers(const Context& context, const Options& options, const Queues& queues,
                      std::vector<Finding>& findings) {
  if (context.job.ranks.size() < 3) return;
  const RankSeries runnable = phase_series(context, Phase::kRunnable);
  stats::OutlierTest test = excess_options(context, options);
  test.least = contention_threshold(context, runnable);
  test.confidence_min = kStrictConfidenceMin;
  test.seed = options.seed ^ kContentionStream;
  const RankSeries excess = stats::excess_over_peers(runnable);
  const Lateness lateness = measure_lateness(context, {});
  const std::vector<bool> none(context.job.ranks.size());
  for (const stats::Outlier& outlier : stats::find_outliers(excess, none, test)) {
    const std::int32_t number = context.job.ranks[outlier.member].rank;
    if (Finding* cause = finding_of(findings, number); cause != nullptr) {
      // More work on a busy processor queues longer: a consequence, not a second cause.
      cause->evidence.push_back(fmt::format(words::kAlsoWaits, outlier.excess, per_step(context)));
      continue;
    }
    if (!waits_least(lateness, outlier.member, outlier.excess, none)) continue;
    Finding finding;
    finding.kind = "cpu_contention";
    finding.ranks = {number};
    finding.cost_ms_per_step = outlier.excess;
    finding.share = outlier.excess / context.mean_step_ms;
    finding.confidence = finding.rank_confidence = outlier.confidence;
    finding.evidence.push_back(fmt::format(words::kWaitsMore, outlier.excess, per_step(context)));
    finding.evidence.push_back(takers_text(context, queues, {outlier.member}));
    add_lateness(context, lateness, outlier.member, finding);
    findings.push_back(std::move(finding));
  }
}

/// Share of resamples of the steps in which `part` takes `share_min` of them.
double share_confidence(const std::vector<double>& part, const std::vector<double>& step,
                        double share_min, const Options& options) {
  const stats::PrefixSums parts(part), steps(step);
  stats::BlockBootstrap bootstrap(part.size(), stats::default_block_length(part.size()),
                                  options.seed ^ kContentionStream);
  std::size_t hits = 0;
  for (std::uint32_t i = 0; i < options.resample_count; ++i) {
    const auto blocks = bootstrap.draw();
    hits += parts.mean(blocks) >= share_min * steps.mean(blocks) ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(options.resample_count);
}

/// Threads of the job that have the processors while `ranks` (indices) queue for them.
std::size_t busy_threads(const Queues& queues, const std::vector<std::size_t>& ranks) {
  std::map<std::int32_t, double> threads;
  double all = 0;
  for (const std::size_t r : ranks) {
    for (const auto& [tid, ms] : queues.ranks[r].job_ms) {
      threads[tid] += ms;
      all += ms;
    }
  }
  return static_cast<std::size_t>(std::count_if(threads.begin(), threads.end(), [&](const auto& t) {
    return t.second >= kToldShareMin * all;
  }));
}

/// Adds the advice for a job that stands in its own way.
void add_own_advice(const Context& context, const Queues& queues,
                    const std::vector<std::size_t>& ranks,
                    const std::map<std::int32_t, Limits>& limits, Finding& finding) {
  std::set<std::string> cpus;
  std::uint64_t allowed = 0, host = 0;
  for (const std::size_t r : ranks) {
    const auto found = limits.find(context.job.ranks[r].rank);
    if (found == limits.end()) continue;
    cpus.insert(found->second.cpus);
    allowed = std::max(allowed, found->second.cpu_count);
    host = std::max(host, found->second.host_count);
  }
  const bool is_confined = !cpus.empty() && allowed < host;
  finding.evidence.push_back(fmt::format(
      words::kCompete, busy_threads(queues, ranks),
      cpus.empty() ? words::kTheirProcessors
      : cpus.size() > 1
          ? fmt::format(words::kProcessorsEach, allowed, allowed == 1 ? "" : "s")
          : fmt::format(words::kProcessorsList, allowed == 1 ? "" : "s", *cpus.begin(),
                        is_confined ? fmt::format(words::kProcessorsOfHost, host) : "")));
  finding.evidence.emplace_back(is_confined ? words::kAdviceMoreProcessors
                                            : words::kAdviceFewerThreads);
}

double side_share_min(Side side, bool is_confined) {
  if (side == Side::kOutside) return kToldShareMin;
  return is_confined ? kContentionShareMin : kContentionJobShareMin;
}

/// Ranks that queue behind `side` for longer than is accepted; those that queue for half of that
/// belong to them.
std::optional<Finding> find_above_limit(const Context& context, const Options& options,
                                        const Queues& queues, Side side) {
  const auto limits = read_limits(context.trace, context.job);
  std::vector<std::size_t> ranks;
  Finding finding;
  finding.kind = "cpu_contention";
  for (std::size_t r = 0; r < queues.ranks.size(); ++r) {
    const auto found = limits.find(context.job.ranks[r].rank);
    const bool is_confined = found != limits.end() && found->second.is_confined();
    const double share_min = side_share_min(side, is_confined);
    if (queues.ranks[r].mean(side) < kMostShare * share_min * context.mean_step_ms) continue;
    ranks.push_back(r);
    finding.ranks.push_back(context.job.ranks[r].rank);
    finding.cost_ms_per_step += queues.ranks[r].mean(side);
    finding.confidence = std::max(
        finding.confidence, share_confidence(queues.ranks[r].ms[static_cast<std::size_t>(side)],
                                             context.times[r].step_ms, share_min, options));
  }
  if (finding.confidence < kConfidenceMin) return std::nullopt;
  finding.cost_ms_per_step /= static_cast<double>(ranks.size());
  finding.rank_confidence = finding.confidence;
  finding.share = std::min(finding.cost_ms_per_step / context.mean_step_ms, 1.0);
  std::vector<std::string> each;
  for (std::size_t i = 0; i < std::min(ranks.size(), kTakersMax); ++i)
    each.push_back(fmt::format(
        "{} {:.1f} ms", context.job.is_single ? "it" : fmt::format("rank {}", finding.ranks[i]),
        queues.ranks[ranks[i]].mean()));
  finding.evidence.push_back(fmt::format(
      words::kWaitsInAll, a_step(context), fmt::join(each, ", "),
      ranks.size() > each.size() ? fmt::format(words::kMoreRanks, ranks.size() - each.size())
                                 : ""));
  finding.evidence.push_back(takers_text(context, queues, ranks));
  if (side == Side::kJob) {
    add_own_advice(context, queues, ranks, limits, finding);
  } else {
    finding.evidence.emplace_back(words::kAdviceMoveOthers);
  }
  return finding;
}

void note_queueing(const Context& context, const Queues& queues, std::vector<std::string>& notes) {
  double mean_ms = 0;
  std::vector<std::size_t> ranks;
  for (const Queueing& rank : queues.ranks) {
    mean_ms += rank.mean() / static_cast<double>(queues.ranks.size());
    ranks.push_back(ranks.size());
  }
  if (mean_ms < kContentionShareMin * context.mean_step_ms) return;
  notes.push_back(fmt::format(words::kWaitingNote, mean_ms, a_step(context),
                              takers_text(context, queues, ranks)));
}

}  // namespace

void find_contention(const Context& context, const Options& options, std::vector<Finding>& findings,
                     std::vector<std::string>& notes) {
  const bool is_known =
      std::any_of(context.job.ranks.begin(), context.job.ranks.end(),
                  [](const RankData& rank) { return !rank.main.queue_waits.empty(); });
  if (!is_known) return;
  const Queues queues = read_queues(context);
  if (context.job.ranks.size() > 1) find_above_peers(context, options, queues, findings);
  const bool has_odd_rank = std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.kind == "cpu_contention";
  });
  if (has_odd_rank) return;
  for (const Side side : {Side::kOutside, Side::kJob}) {
    if (auto found = find_above_limit(context, options, queues, side)) {
      findings.push_back(std::move(*found));
      return;
    }
  }
  note_queueing(context, queues, notes);
}

}  // namespace kansoku::diagnose
