// SPDX-License-Identifier: Apache-2.0
#include "diagnose/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "common/python_code.h"
#include "common/rng.h"
#include "common/time.h"
#include "diagnose/internal/order.h"
#include "diagnose/internal/profile/late_ranks.h"
#include "diagnose/internal/profile/own_caller.h"
#include "diagnose/internal/profile/profile_job.h"
#include "diagnose/internal/words.h"
#include "diagnose/localise_patterns.h"
#include "diagnose/pattern.h"
#include "diagnose/thresholds.h"
#include "stats/intervals.h"
#include "stats/peers.h"
#include "stats/summary.h"
#include "stats/thresholds.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kRowsShownMax = 40;
constexpr std::size_t kNotesMax = 16;
constexpr std::size_t kTestedMax = 8;  // functions with the greatest excess

/// View of one rank's window.
struct RankView {
  const ProfiledRank* rank{nullptr};
  Pattern pattern;
  double input_share{0};
  std::uint32_t input_function{0};       // the one with the most time
  double gpu_busy{0};                    // compute, memory and collectives
  std::vector<double> input_ms_of_step;  // if the profiler marked steps
  std::vector<double> step_ms;
};

class ProfileDiagnosis {
 public:
  /// `has_peers`: the job has ranks whose profiles may be missing here.
  ProfileDiagnosis(const trace::Trace& trace, ProfileJob job, bool has_peers,
                   const Options& options)
      : trace_(trace), job_(std::move(job)), has_peers_(has_peers), options_(options) {}
  Diagnosis run();

 private:
  void view_ranks();
  [[nodiscard]] std::string longest_idle(const RankView& view) const;
  void find_input();
  void find_outliers();
  void find_late_ranks();
  void leave_out_unreadable();
  void summarise();
  [[nodiscard]] double support_of_input(const RankView& view, double share_min) const;
  [[nodiscard]] double step_ms_of(const RankView& view) const;
  /// By function, as times_by_block() takes them.
  using BlockTimes = std::map<std::uint32_t, stats::MemberSeries>;
  [[nodiscard]] BlockTimes times_by_block(const std::vector<std::uint32_t>& functions) const;
  [[nodiscard]] std::vector<double> confidences_of(const stats::MemberSeries& times) const;
  [[nodiscard]] Finding outlier_finding(const std::vector<PatternOutlier>& outliers,
                                        double confidence, std::uint32_t function) const;
  void name_caller(const ProfiledRank& rank, Finding& finding) const;

  const trace::Trace& trace_;
  ProfileJob job_;
  bool has_peers_;
  const Options& options_;
  std::vector<RankView> views_;
  Diagnosis out_;
};

/// The longest time without work on the device in all of the trace, if it is long, and what the
/// host did in most of it: a start, an evaluation, a checkpoint stand outside of the steps.
std::string ProfileDiagnosis::longest_idle(const RankView& view) const {
  const ProfiledRank& rank = *view.rank;
  std::vector<stats::Interval> busy;
  for (const Execution& one : rank.executions)
    if (one.activity == Activity::kGpuCompute || one.activity == Activity::kGpuMemory ||
        one.activity == Activity::kCollective)
      busy.push_back({one.begin_ns, one.end_ns});
  std::sort(busy.begin(), busy.end(),
            [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  stats::Interval longest{rank.seen_begin_ns, rank.seen_begin_ns};
  std::int64_t until_ns = rank.seen_begin_ns;
  const auto take = [&](std::int64_t begin_ns) {
    if (begin_ns - until_ns > longest.ns()) longest = {until_ns, begin_ns};
  };
  for (const stats::Interval& one : busy) {
    take(one.begin_ns);
    until_ns = std::max(until_ns, one.end_ns);
  }
  take(rank.seen_end_ns);
  const auto seen_ns = static_cast<double>(rank.seen_end_ns - rank.seen_begin_ns);
  if (busy.empty() || static_cast<double>(longest.ns()) < kLongIdleShareMin * seen_ns) return {};
  const std::string_view where = longest.begin_ns == rank.seen_begin_ns ? words::kBeforeFirst
                                 : longest.end_ns == rank.seen_end_ns   ? words::kBehindLast
                                                                        : "";
  // The innermost call that has most of it: of those, the last to begin.
  const HostCall* call = nullptr;
  for (const HostCall& one : rank.long_calls) {
    const std::int64_t in_ns =
        std::min(one.end_ns, longest.end_ns) - std::max(one.begin_ns, longest.begin_ns);
    if (2 * in_ns > longest.ns()) call = &one;
  }
  return fmt::format(words::kLongestIdle, static_cast<double>(longest.ns()) / kNsPerMs, where,
                     call == nullptr ? std::string(words::kHostNotSeen)
                                     : fmt::format(words::kHostIsIn, job_.names[call->name]));
}

void ProfileDiagnosis::view_ranks() {
  for (const ProfiledRank& rank : job_.ranks) {
    RankView view;
    view.rank = &rank;
    view.input_ms_of_step.assign(rank.steps.size(), 0);
    std::size_t step = 0;
    const auto on_owned = [&](const Execution& owner, std::int64_t begin_ns, std::int64_t end_ns) {
      if (owner.activity != Activity::kInput) return;
      while (step < rank.steps.size() && rank.steps[step].second <= begin_ns)
        ++step;
      for (std::size_t s = step; s < rank.steps.size() && rank.steps[s].first < end_ns; ++s) {
        const std::int64_t from = std::max(begin_ns, rank.steps[s].first);
        const std::int64_t to = std::min(end_ns, rank.steps[s].second);
        if (to > from) view.input_ms_of_step[s] += static_cast<double>(to - from) / kNsPerMs;
      }
    };
    view.pattern = build_pattern(rank.executions, rank.begin_ns, rank.end_ns,
                                 rank.has_gpu ? kGpuPriorities : kCpuPriorities, on_owned);
    view.pattern.rank = rank.rank;
    for (const auto& [begin_ns, end_ns] : rank.steps)
      view.step_ms.push_back(static_cast<double>(end_ns - begin_ns) / kNsPerMs);
    double most = 0;
    for (const PatternRow& row : view.pattern.rows) {
      if (row.activity == Activity::kInput) {
        view.input_share += row.beta;
        if (row.beta > most) {
          most = row.beta;
          view.input_function = row.function;
        }
      }
      if (rank.has_gpu &&
          (row.activity == Activity::kGpuCompute || row.activity == Activity::kGpuMemory ||
           row.activity == Activity::kCollective))
        view.gpu_busy += row.beta;
    }
    views_.push_back(std::move(view));
  }
}

double ProfileDiagnosis::step_ms_of(const RankView& view) const {
  if (!view.step_ms.empty()) return stats::mean(view.step_ms);
  return static_cast<double>(view.pattern.window_ns) / kNsPerMs;
}

/// Share of resamples of the steps in which input takes at least `share_min` of the time.
double ProfileDiagnosis::support_of_input(const RankView& view, double share_min) const {
  const std::size_t count = view.step_ms.size();
  if (count < 2) return view.input_share >= share_min ? 1 : 0;
  Rng rng(options_.seed, static_cast<std::uint64_t>(view.rank->rank));
  std::uint32_t hits = 0;
  for (std::uint32_t i = 0; i < options_.function_resample_count; ++i) {
    double input = 0, whole = 0;
    for (std::size_t s = 0; s < count; ++s) {
      const auto drawn = static_cast<std::size_t>(rng.below(count));
      input += view.input_ms_of_step[drawn];
      whole += view.step_ms[drawn];
    }
    hits += whole > 0 && input >= share_min * whole ? 1 : 0;
  }
  return static_cast<double>(hits) / options_.function_resample_count;
}

void ProfileDiagnosis::find_input() {
  const double share_min = kProfileInputShareMin;
  double least = 1, support = 1, share = 0, cost_ms = 0;
  bool is_tested = true;  // steps were drawn anew
  for (const RankView& view : views_) {
    is_tested = is_tested && view.step_ms.size() >= 2;
    least = std::min(least, view.input_share);
    support = std::min(support, support_of_input(view, share_min));
    const double ms = view.step_ms.empty() ? view.input_share * step_ms_of(view)
                                           : stats::mean(view.input_ms_of_step);
    share += view.input_share / static_cast<double>(views_.size());
    cost_ms += ms / static_cast<double>(views_.size());
  }
  if (views_.empty() || least < share_min || support < kConfidenceMin) return;
  Finding finding;
  finding.kind = "common_input";
  finding.phase = "input";
  for (const RankView& view : views_)
    finding.ranks.push_back(view.rank->rank);
  finding.function = job_.names[views_.front().input_function];
  finding.cost_ms_per_step = cost_ms;
  finding.share = share;
  finding.basis = is_tested ? Basis::kTest : Basis::kObservation;
  finding.confidence = finding.rank_confidence = support;
  const RankView& first = views_.front();
  finding.evidence.push_back(
      fmt::format(words::kLoaderTakes, first.input_share * 100,
                  first.rank->has_gpu ? words::kDeviceRunsNothing : words::kModelWaits));
  if (first.rank->has_gpu) {
    finding.evidence.push_back(fmt::format(words::kDeviceBusy, first.gpu_busy * 100));
  }
  const bool is_single = finding.function.find("SingleProcess") != std::string::npos;
  finding.evidence.push_back(is_single ? words::kAdviceWorkers : words::kAdviceFasterInput);
  out_.findings.push_back(std::move(finding));
}

/// Milliseconds that each of the functions owns in each block of the window, by rank: steps, if all
/// ranks have enough of them; else equal parts.
ProfileDiagnosis::BlockTimes ProfileDiagnosis::times_by_block(
    const std::vector<std::uint32_t>& functions) const {
  std::size_t steps = std::numeric_limits<std::size_t>::max();
  for (const RankView& view : views_)
    steps = std::min(steps, view.rank->steps.size());
  const bool has_steps = steps >= stats::kBlocksMin;
  const std::size_t count = has_steps ? steps : 2 * stats::kBlocksMin;
  BlockTimes out;
  for (const std::uint32_t function : functions)
    out[function].assign(views_.size(), std::vector<double>(count));
  for (std::size_t r = 0; r < views_.size(); ++r) {
    const ProfiledRank& rank = *views_[r].rank;
    const std::int64_t part_ns = (rank.end_ns - rank.begin_ns) / static_cast<std::int64_t>(count);
    const auto end_of = [&](std::size_t block) {
      if (has_steps) return rank.steps[block].second;
      return block + 1 == count ? rank.end_ns
                                : rank.begin_ns + part_ns * static_cast<std::int64_t>(block + 1);
    };
    std::size_t block = 0;
    const auto on_owned = [&](const Execution& owner, std::int64_t begin_ns, std::int64_t end_ns) {
      const auto wanted = out.find(owner.function);
      for (; block < count; ++block) {
        const std::int64_t until_ns = std::clamp(end_of(block), begin_ns, end_ns);
        if (wanted != out.end())
          wanted->second[r][block] += static_cast<double>(until_ns - begin_ns) / kNsPerMs;
        begin_ns = until_ns;
        if (begin_ns == end_ns) break;
      }
    };
    static_cast<void>(build_pattern(rank.executions, rank.begin_ns, rank.end_ns,
                                    rank.has_gpu ? kGpuPriorities : kCpuPriorities, on_owned));
  }
  return out;
}

/// By rank, how sure it is that it takes longer than the others, by the test that recordings use; 0
/// of a rank that does not pass it.
std::vector<double> ProfileDiagnosis::confidences_of(const stats::MemberSeries& times) const {
  std::vector<double> out(times.size());
  const auto outliers =
      stats::find_outliers(stats::excess_over_peers(times), std::vector<bool>(times.size()),
                           {.confidence_min = kConfidenceMin,
                            .clip_share = kClipShare,
                            .resample_count = options_.resample_count,
                            .seed = options_.seed});
  for (const stats::Outlier& outlier : outliers)
    out[outlier.member] = outlier.confidence;
  return out;
}

// A library's function does what the job's own one that calls it asks for.
void ProfileDiagnosis::name_caller(const ProfiledRank& rank, Finding& finding) const {
  const auto caller = own_caller(trace_, rank.pids, finding.function);
  if (caller) finding.evidence.push_back(fmt::format(words::kSpentIn, finding.function));
  const std::string name = finding.function;
  const auto named = caller ? caller : parse_python_name(name);
  if (!named) return;
  finding.function = named->function;
  finding.file = named->file;
  finding.line = named->line;
}

Finding ProfileDiagnosis::outlier_finding(const std::vector<PatternOutlier>& outliers,
                                          double confidence, std::uint32_t function) const {
  const PatternOutlier& worst = outliers.front();
  const RankView& view = views_[worst.rank];
  Finding finding;
  finding.kind = "slow_worker";
  for (const PatternOutlier& outlier : outliers)
    finding.ranks.push_back(views_[outlier.rank].rank->rank);
  std::sort(finding.ranks.begin(), finding.ranks.end());
  finding.function = job_.names[function];
  const double more = worst.beta - worst.peers_beta;
  finding.share = more;
  finding.cost_ms_per_step = more * step_ms_of(view);
  finding.confidence = finding.rank_confidence = confidence;
  finding.evidence.push_back(fmt::format(words::kDiffersFrom, worst.beta * 100, view.rank->rank,
                                         worst.peers_beta * 100, worst.differs * 100));
  if (worst.mu > 0 || worst.peers_mu > 0) {
    finding.evidence.push_back(fmt::format(words::kResourceUse, worst.mu, worst.peers_mu));
  }
  name_caller(*view.rank, finding);
  return finding;
}

void ProfileDiagnosis::find_outliers() {
  if (views_.size() < 3) return;
  std::map<std::uint32_t, std::uint32_t> column_of;  // function -> column
  std::vector<std::uint32_t> functions;
  for (const RankView& view : views_) {
    for (const PatternRow& row : view.pattern.rows) {
      if (row.beta < kPatternBetaMin) break;  // rows are sorted
      if (column_of.try_emplace(row.function, static_cast<std::uint32_t>(functions.size())).second)
        functions.push_back(row.function);
    }
  }
  PatternMatrix matrix(views_.size(), functions.size());
  for (std::size_t r = 0; r < views_.size(); ++r) {
    for (const PatternRow& row : views_[r].pattern.rows) {
      const auto column = column_of.find(row.function);
      if (column == column_of.end()) continue;
      const std::size_t cell = column->second * views_.size() + r;
      matrix.activities[column->second] = row.activity;
      matrix.beta[cell] = static_cast<float>(row.beta);
      matrix.mu[cell] = static_cast<float>(row.mu);
      matrix.sigma[cell] = static_cast<float>(row.sigma);
    }
  }
  std::vector<std::uint32_t> order;  // functions, the one with the greatest excess first
  std::map<std::uint32_t, std::vector<PatternOutlier>> culprits;
  for (const PatternOutlier& outlier : localise(matrix, {.seed = options_.seed})) {
    // A wait for others in a collective is no cause.
    if (!outlier.is_culprit || matrix.activities[outlier.function] == Activity::kCollective)
      continue;
    auto& of_function = culprits[functions[outlier.function]];
    if (of_function.empty()) order.push_back(functions[outlier.function]);
    of_function.push_back(outlier);
  }
  if (order.size() > kTestedMax) order.resize(kTestedMax);
  const BlockTimes times = times_by_block(order);
  for (const std::uint32_t function : order) {
    const std::vector<double> confidences = confidences_of(times.at(function));
    std::vector<PatternOutlier>& outliers = culprits[function];
    std::erase_if(outliers, [&](const PatternOutlier& one) { return confidences[one.rank] == 0; });
    if (outliers.empty()) continue;
    double confidence = 1;
    for (const PatternOutlier& one : outliers)
      confidence = std::min(confidence, confidences[one.rank]);
    out_.findings.push_back(outlier_finding(outliers, confidence, function));
    return;
  }
}

void ProfileDiagnosis::find_late_ranks() {
  if (views_.size() < 2) return;
  const LateRanks late = measure_late_ranks(job_.ranks, options_.seed);
  for (const std::string& note : late.notes)
    out_.notes.push_back(note);
  if (late.matched_count == 0) return;
  const bool is_clear = late.support >= kConfidenceMin && late.cost_ms >= kExcessMinMs &&
                        late.cost_share >= kExcessShareMin;
  if (!is_clear) return;
  if (late.ranks.size() > 1 && 2 * late.ranks.size() > views_.size()) {
    std::vector<std::int32_t> early;
    for (const RankView& view : views_) {
      const std::int32_t rank = view.rank->rank;
      if (std::find(late.ranks.begin(), late.ranks.end(), rank) == late.ranks.end())
        early.push_back(rank);
    }
    out_.notes.push_back(
        fmt::format(words::kEarlyRanks, fmt::join(early, ", "), late.peers_wait_ms));
    return;
  }
  Finding finding;
  finding.kind = views_.size() == 2 ? "asymmetry" : "slow_worker";
  finding.ranks = late.ranks;
  finding.cost_ms_per_step = late.cost_ms;
  finding.share = late.cost_share;
  finding.confidence = finding.rank_confidence = late.support;
  finding.evidence.push_back(fmt::format(words::kLastToArrive, late.last_share * 100,
                                         late.matched_count, late.own_wait_ms, late.peers_wait_ms));
  finding.evidence.push_back(fmt::format(words::kClocksAligned, late.residual_ms));
  // Its work instead of waiting: the function in which it spends more than its peers.
  for (Finding& other : out_.findings) {
    if (other.kind == "slow_worker" && other.ranks == finding.ranks) {
      other.evidence.insert(other.evidence.end(), finding.evidence.begin(), finding.evidence.end());
      return;
    }
  }
  out_.findings.push_back(std::move(finding));
}

// A rank of which many events are missing behaves unlike its peers for that reason.
void ProfileDiagnosis::leave_out_unreadable() {
  std::vector<std::string> notes;
  for (const RankView& view : views_) {
    const double share = view.rank->unreadable_share;
    if (share < kUnreadableShareMin) continue;
    out_.unreadable.push_back(view.rank->rank);
    notes.push_back(fmt::format(words::kUnreadable, view.rank->rank, share * 100));
  }
  auto& to = notes.size() == views_.size() ? out_.missing : out_.notes;
  to.insert(to.end(), notes.begin(), notes.end());
  std::erase_if(out_.findings, [&](const Finding& one) { return out_.is_unreadable(one.ranks); });
}

void ProfileDiagnosis::summarise() {
  std::vector<double> all;
  for (const RankView& view : views_) {
    RankSummary summary;
    summary.rank = view.rank->rank;
    summary.step_ms = step_ms_of(view);
    summary.phase_ms[static_cast<std::size_t>(Phase::kInput)] = view.input_share * summary.step_ms;
    out_.ranks.push_back(summary);
    all.insert(all.end(), view.step_ms.begin(), view.step_ms.end());
    NamedPattern named{.pattern = view.pattern, .names = {}};
    auto& rows = named.pattern.rows;
    if (rows.size() > kRowsShownMax) rows.resize(kRowsShownMax);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      named.names.push_back(job_.names[rows[i].function]);
      rows[i].function = static_cast<std::uint32_t>(i);
    }
    out_.patterns.push_back(std::move(named));
  }
  if (!all.empty()) {
    out_.steps.count = views_.front().step_ms.size();
    out_.steps.found_by = "profiler";
    out_.steps.durations_ms = all;
    out_.steps.median_ms = stats::median(all);
    out_.steps.p95_ms = stats::quantile(all, 0.95);
    out_.steps.mean_ms = stats::mean(all);
  }
}

Diagnosis ProfileDiagnosis::run() {
  out_.notes = job_.notes;
  view_ranks();
  summarise();
  find_input();
  find_outliers();
  find_late_ranks();
  leave_out_unreadable();
  verdict::put_in_order(out_.findings);
  for (const RankView& view : views_) {
    if (view.rank->has_gpu && out_.notes.size() < kNotesMax) {
      out_.notes.push_back(
          fmt::format(words::kDeviceIdle, view.rank->rank, (1 - view.gpu_busy) * 100,
                      static_cast<double>(view.pattern.window_ns) / kNsPerMs,
                      view.rank->is_of_steps ? words::kWindowOfSteps : words::kWindowOfEvents) +
          longest_idle(view));
    }
  }
  if (views_.empty()) out_.missing = job_.notes;
  if (views_.size() == 1)
    out_.missing.emplace_back(has_peers_ ? words::kOneRankOfTraces : words::kOneProcessOfTraces);
  if (views_.size() == 2) out_.notes.emplace_back(words::kTwoRanks);
  return std::move(out_);
}

/// All files are one job. A trace whose files name no rank is rank 0.
void add_processes(const trace::Trace& trace, std::optional<std::int32_t> pid, Diagnosis& out) {
  std::map<std::int32_t, std::vector<std::int32_t>> of_ranks;
  for (const RankSummary& rank : out.ranks)
    of_ranks[rank.rank];
  for (const trace::Process& process : trace.processes) {
    if (pid && process.pid != *pid) continue;
    out.pids.push_back(process.pid);
    const std::int32_t rank = process.rank == trace::kNoRank ? 0 : process.rank;
    if (const auto found = of_ranks.find(rank); found != of_ranks.end())
      found->second.push_back(process.pid);
  }
  std::sort(out.pids.begin(), out.pids.end());
  for (auto& [rank, pids] : of_ranks) {
    out.rank_numbers.push_back(rank);
    out.rank_pids.push_back(std::move(pids));
  }
}

/// True if a job has more ranks than one, as far as its files say.
bool has_peers(const trace::Trace& trace) {
  std::int32_t world = trace::kNoRank, rank = trace::kNoRank;
  for (const trace::Process& process : trace.processes) {
    world = std::max(world, process.world_size);
    rank = std::max(rank, process.rank);
  }
  return world > 1 || (world == trace::kNoRank && rank != trace::kNoRank);
}

Diagnosis diagnose_part(const trace::Trace& trace, std::optional<std::int32_t> pid,
                        const Options& options) {
  const bool may_have_peers = !pid && has_peers(trace);
  Diagnosis out =
      ProfileDiagnosis(trace, read_profile_job(trace, pid), may_have_peers, options).run();
  for (const auto& [name, loss] : trace.losses) {
    if (loss.count > 0) out.losses.push_back(loss);
  }
  add_processes(trace, pid, out);
  return out;
}

}  // namespace

Result<Diagnosis> diagnose_profile(const trace::Trace& trace, const Options& options) {
  const std::vector<std::int32_t> programs = programs_of(trace);
  if (programs.size() < 2) return diagnose_part(trace, std::nullopt, options);
  std::vector<Diagnosis> jobs;
  for (const std::int32_t pid : programs) {
    Diagnosis job = diagnose_part(trace, pid, options);
    job.job = name_of_process(trace, pid);
    job.is_single = true;
    jobs.push_back(std::move(job));
  }
  return join_jobs(std::move(jobs));
}

}  // namespace kansoku::diagnose
