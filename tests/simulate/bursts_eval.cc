// SPDX-License-Identifier: Apache-2.0
// How well models of arrivals keep bursts: bursts_eval CSV [--seeds N] [--table N] [--fits]
// [--from DATE].
// CSV: Philly's jobs ("-": standard input). Prints Markdown; see
// docs/measurements/simulation-bursts.md.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "bursts_change.h"
#include "bursts_fits.h"
#include "bursts_judge.h"
#include "common/parse.h"
#include "stats/fit.h"
#include "stats/summary.h"

namespace kansoku::simulate {
namespace {

constexpr int kWeeks = 6;

struct Options {
  std::string path;
  std::string from{"2017-09-25"};
  int seeds{40};
  int table{0};  // 0: all
  bool fits{false};
};

struct Study {
  std::vector<int> fitting, judged;
};

/// The candidate with the least error on fitting weeks left out.
struct Chosen {
  Candidate candidate;
  std::vector<Score> scores;
};

Chosen choose_model(const Recording& recording, const Study& study, int seeds) {
  const std::vector<Candidate> candidates = all_candidates();
  auto scores = leave_one_out(recording, candidates, study.fitting, seeds);
  CHECK(!scores.empty());
  return {candidates[scores.front().candidate], std::move(scores)};
}

void print_row(std::string_view name, const Judgement& judged) {
  fmt::print("| {} | {} | {} | {:.2f} |\n", name, text_of(judged.mean), text_of(judged.p90),
             judged.load);
}

void print_header(std::string_view what) {
  fmt::print("| {} | mean wait, ratio | p90 wait, ratio | load |\n|---|---|---|---|\n", what);
}

void print_yardstick(const Study& study, const Yardstick& yardstick) {
  fmt::print(
      "**Fitted to weeks {}, judged on {}** ({} GPUs, load {:.3f}, recorded mean wait "
      "{:.0f} s, p90 {:.0f} s)\n\n",
      list_of(study.fitting), list_of(study.judged), yardstick.gpus, yardstick.load,
      yardstick.real.mean_wait_s, yardstick.real.p90_wait_s);
}

/// Every candidate, by its error on the fitting weeks; the first is the chosen one.
void print_candidates(const Recording& recording, const Study& study, const Chosen& chosen,
                      int seeds) {
  const Yardstick yardstick = yardstick_of(recording, study.judged);
  const Workload fitting = join_weeks(recording, study.fitting);
  const std::vector<Candidate> candidates = all_candidates();
  print_yardstick(study, yardstick);
  fmt::print(
      "| model | error on left-out fitting weeks | mean wait, ratio | p90 wait, ratio | load "
      "|\n|---|---|---|---|---|\n");
  for (std::size_t rank = 0; rank < chosen.scores.size(); ++rank) {
    const Score& score = chosen.scores[rank];
    const Candidate& candidate = candidates[score.candidate];
    const auto stream = candidate.fit(fitting, static_cast<int>(study.fitting.size()));
    if (!stream) continue;
    const Judgement judged = judge(*stream, yardstick, seeds);
    fmt::print("| {}{} | {:.2f} | {} | {} | {:.2f} |\n", candidate.name,
               rank == 0 ? " **(chosen)**" : "", score.log_error, text_of(judged.mean),
               text_of(judged.p90), judged.load);
  }
  fmt::print("\n");
}

/// The chosen model and PipeSim's: on all judged weeks, and on each alone on its own cluster.
void print_comparison(const Recording& recording, const Study& study, const Chosen& chosen,
                      int seeds) {
  const Workload fitting = join_weeks(recording, study.fitting);
  std::vector<std::vector<int>> judged{study.judged};
  for (const int week : study.judged)
    judged.push_back({week});
  print_header("judged on weeks");
  for (const Candidate& candidate : {chosen.candidate, pipesim_candidate()}) {
    const auto stream = candidate.fit(fitting, static_cast<int>(study.fitting.size()));
    if (!stream) continue;
    for (const auto& weeks : judged) {
      const Yardstick yardstick = yardstick_of(recording, weeks);
      print_row(fmt::format("{} (recorded {:.0f} s, p90 {:.0f} s): {}", list_of(weeks),
                            yardstick.real.mean_wait_s, yardstick.real.p90_wait_s, candidate.name),
                judge(*stream, yardstick, seeds));
    }
  }
  fmt::print("\n");
}

std::vector<double> durations_of(const Workload& joined) {
  std::vector<double> out;
  for (const Job& job : joined.jobs)
    out.push_back(static_cast<double>(job.duration.count()) * 1e-9);
  return out;
}

/// How the recorded jobs and those of a model meet their queue: what jobs wait, what a job that
/// came at any time would, and how many GPUs they want at once, which no queue has smoothed.
void print_probes(const Stream& stream, const Yardstick& yardstick, int seeds) {
  struct Figures {
    std::vector<double> waits, probes, busy_mean, busy_p99, share_over;
  };
  const auto add = [&](const std::vector<Job>& jobs, Figures& to) {
    to.waits.push_back(replay_gangs(jobs, yardstick.gpus).mean_wait_s);
    to.probes.push_back(probe_wait_s(jobs, yardstick.gpus, yardstick.weeks));
    const std::vector<double> busy = busy_gpus(jobs, yardstick.weeks);
    to.busy_mean.push_back(stats::mean(busy));
    to.busy_p99.push_back(stats::quantile(busy, 0.99));
    const auto over =
        std::count_if(busy.begin(), busy.end(), [&](double gpus) { return gpus > yardstick.gpus; });
    to.share_over.push_back(static_cast<double>(over) / static_cast<double>(busy.size()));
  };
  const auto print = [](std::string_view name, const Figures& of) {
    fmt::print("| {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.3f} |\n", name,
               stats::median(of.waits), stats::median(of.probes), stats::median(of.busy_mean),
               stats::median(of.busy_p99), stats::median(of.share_over));
  };
  Figures recorded;
  Figures model;
  add(yardstick.joined.jobs, recorded);
  for (int seed = 1; seed <= seeds; ++seed)
    add(stream(static_cast<std::uint64_t>(seed), yardstick.weeks), model);
  fmt::print(
      "| | mean wait of the jobs, s | of a probe at any time, s | GPUs wanted at once from "
      "the second week on: mean | p99 | share of the time above the cluster's {} |\n"
      "|---|---|---|---|---|---|\n",
      yardstick.gpus);
  print("recorded", recorded);
  print("model, median of the seeds", model);
  fmt::print("\n");
}

/// Prints the differences between the fitting and the judged weeks, and the ratio when one
/// difference is taken away.
void print_causes(const Recording& recording, const Study& study, const Chosen& chosen, int seeds) {
  const Workload fitting = join_weeks(recording, study.fitting);
  const Yardstick yardstick = yardstick_of(recording, study.judged);
  fmt::print(
      "| weeks | jobs an hour | IDC | jobs a session | GPUs offered | mean GPUs a job | "
      "median s |\n|---|---|---|---|---|---|---|\n");
  const auto describe = [](const Workload& joined, const std::vector<int>& numbers) {
    const auto s = arrival_statistics(joined.jobs, 0);
    double gpus = 0;
    for (const Job& job : joined.jobs)
      gpus += job.gpus;
    fmt::print("| {} | {:.0f} | {:.0f} | {:.1f} | {:.0f} | {:.2f} | {:.0f} |\n", list_of(numbers),
               s.per_hour_mean, s.index_of_dispersion, s.session_jobs_mean,
               offered_gpus(joined.jobs, static_cast<int>(numbers.size()) * kWeekLength),
               gpus / static_cast<double>(joined.jobs.size()), stats::median(durations_of(joined)));
  };
  describe(fitting, study.fitting);
  describe(yardstick.joined, study.judged);
  fmt::print("\nKS between their durations: {:.3f}.\n\n",
             stats::ks_distance(durations_of(fitting), durations_of(yardstick.joined)));
  print_header(fmt::format("{}, with this from the judged weeks", chosen.candidate.name));
  for (const Swap& swap :
       swaps(fitting, static_cast<int>(study.fitting.size()), yardstick.joined, yardstick.weeks)) {
    const auto stream = chosen.candidate.fit(swap.joined, swap.weeks);
    if (stream) print_row(swap.name, judge(*stream, yardstick, seeds));
  }
  fmt::print("\n");
  const auto stream = chosen.candidate.fit(fitting, static_cast<int>(study.fitting.size()));
  if (stream) print_probes(*stream, yardstick, seeds);
}

/// The half-life and gap with the least error when each fitting week but the first is predicted
/// from the ones before it.
AdaptiveOptions choose_adaptive(const Recording& recording, const std::vector<int>& fitting,
                                int seeds) {
  const Workload past = join_weeks(recording, fitting);
  AdaptiveOptions best;
  double least = 1e300;
  for (const double gap_s : {60.0, 300.0})
    for (const double half_life_days : {2.0, 4.0, 7.0, 14.0, 28.0}) {
      const AdaptiveOptions options{gap_s, half_life_days};
      double error = 0;
      for (std::size_t known = 1; known < fitting.size(); ++known)
        error += judge(adaptive_stream(past, static_cast<int>(known), options),
                       yardstick_of(recording, {fitting[known]}), seeds)
                     .log_error;
      if (error >= least) continue;
      least = error;
      best = options;
    }
  return best;
}

void print_adaptive(const Recording& recording, const Study& study, const Chosen& chosen,
                    int seeds) {
  const Yardstick yardstick = yardstick_of(recording, study.judged);
  std::vector<int> all = study.fitting;
  all.insert(all.end(), study.judged.begin(), study.judged.end());
  const Workload past = join_weeks(recording, all);
  const auto known = static_cast<int>(study.fitting.size());
  print_yardstick(study, yardstick);
  print_header("model");
  const auto fixed = chosen.candidate.fit(join_weeks(recording, study.fitting), known);
  if (fixed)
    print_row(fmt::format("{}, fitted once", chosen.candidate.name),
              judge(*fixed, yardstick, seeds));
  const auto print_weekly = [&](const Candidate& candidate, int trailing, const char* window) {
    std::string error;
    const Stream stream = weekly_stream(candidate, past, known, trailing, error);
    if (stream)
      print_row(fmt::format("{}, fitted each week to {}", candidate.name, window),
                judge(stream, yardstick, seeds));
  };
  print_weekly(chosen.candidate, 0, "all weeks before");
  print_weekly(chosen.candidate, 2, "the last two weeks");
  print_weekly(pipesim_candidate(), 0, "all weeks before");
  const AdaptiveOptions best = choose_adaptive(recording, study.fitting, seeds);
  for (const double half_life_days : {2.0, 4.0, 7.0, 14.0, 28.0}) {
    const bool is_best = half_life_days == best.half_life_days;
    const std::string name =
        fmt::format("fitted each day, sessions of {:.0f} s, half-life {:.0f} days{}", best.gap_s,
                    half_life_days, is_best ? " **(chosen)**" : "");
    const Stream stream = adaptive_stream(past, known, {best.gap_s, half_life_days});
    print_row(name, judge(stream, yardstick, seeds));
    if (is_best)
      print_row("the same, each day begun with the recorded queue",
                judge_daily(stream, yardstick, seeds));
  }
  const Stream recorded = [&](std::uint64_t, int) { return yardstick.joined.jobs; };
  print_row("the recorded jobs, each day begun with the recorded queue (check: 1)",
            judge_daily(recorded, yardstick, 3));
  if (fixed)
    print_row(fmt::format("{}, fitted once, each day begun with the recorded queue",
                          chosen.candidate.name),
              judge_daily(*fixed, yardstick, seeds));
  fmt::print("\n");
}

/// Statistics of six weeks drawn from models of the same six weeks: what each keeps.
void print_statistics(const Recording& recording, const std::vector<Candidate>& models, int seeds) {
  const Workload joined = join_weeks(recording, {1, 2, 3, 4, 5, 6});
  std::vector<std::vector<ArrivalStatistics>> columns{{arrival_statistics(joined.jobs, 0)}};
  fmt::print("| six weeks | recorded |");
  for (const Candidate& model : models) {
    const auto stream = model.fit(joined, kWeeks);
    if (!stream) continue;
    fmt::print(" {} |", model.name);
    columns.emplace_back();
    for (int seed = 1; seed <= seeds; ++seed)
      columns.back().push_back(
          arrival_statistics((*stream)(static_cast<std::uint64_t>(seed), kWeeks), 0));
  }
  fmt::print("\n|---|");
  for (std::size_t i = 0; i < columns.size(); ++i)
    fmt::print("---|");
  const auto row = [&](std::string_view name, double ArrivalStatistics::*member) {
    fmt::print("\n| {} |", name);
    for (const auto& column : columns) {
      std::vector<double> values;
      for (const auto& statistics : column)
        values.push_back(statistics.*member);
      fmt::print(" {:.4g} |", stats::median(values));
    }
  };
  row("jobs an hour, mean", &ArrivalStatistics::per_hour_mean);
  row("jobs an hour, most", &ArrivalStatistics::per_hour_max);
  row("IDC of counts an hour", &ArrivalStatistics::index_of_dispersion);
  row("CV of gaps", &ArrivalStatistics::gap_cv);
  row("share of zero gaps", &ArrivalStatistics::zero_gap_share);
  row("autocorrelation of log(1 + gap), lag 1", &ArrivalStatistics::log_gap_autocorrelation_1);
  row("the same, lag 10", &ArrivalStatistics::log_gap_autocorrelation_10);
  row("variance explained by hour of week", &ArrivalStatistics::hour_of_week_variance_share);
  row("jobs a session (120 s)", &ArrivalStatistics::session_jobs_mean);
  row("intra-class correlation of log duration", &ArrivalStatistics::duration_intraclass);
  row("next job of a session: same GPUs", &ArrivalStatistics::same_gpus_share);
  fmt::print("\n\n");
}

/// Table 1 and what is kept.
void print_interleaved(const Recording& recording, int seeds) {
  fmt::print("### Table 1: interleaved weeks\n\n");
  std::vector<Candidate> models{
      pipesim_candidate(),
      arrival_candidate("hour-of-week Poisson", ArrivalModel::Kind::kHourOfWeekPoisson),
      arrival_candidate("sessions, 120 s", ArrivalModel::Kind::kSessions, 120)};
  for (const Study& study : {Study{{1, 3, 5}, {2, 4, 6}}, Study{{2, 4, 6}, {1, 3, 5}}}) {
    const Chosen chosen = choose_model(recording, study, seeds);
    print_candidates(recording, study, chosen, seeds);
    print_comparison(recording, study, chosen, seeds);
    models.push_back(chosen.candidate);
  }
  fmt::print("### What is kept\n\n");
  print_statistics(recording, models, seeds);
}

/// Tables 2 and 3; 0: both.
void print_later(const Recording& recording, int table, int seeds) {
  const std::vector<Study> studies{{{1, 2, 3}, {4, 5, 6}}, {{1, 2, 3, 4}, {5, 6}}};
  std::vector<Chosen> chosen;
  for (const Study& study : studies)
    chosen.push_back(choose_model(recording, study, seeds));
  if (table != 3) fmt::print("### Table 2: later weeks, and why\n\n");
  for (std::size_t i = 0; i < studies.size() && table != 3; ++i) {
    print_candidates(recording, studies[i], chosen[i], seeds);
    print_comparison(recording, studies[i], chosen[i], seeds);
    print_causes(recording, studies[i], chosen[i], seeds);
  }
  if (table != 2) fmt::print("### Table 3: fitted anew as time goes on\n\n");
  for (std::size_t i = 0; i < studies.size() && table != 2; ++i)
    print_adaptive(recording, studies[i], chosen[i], seeds);
}

void evaluate(const Recording& recording, const Options& options) {
  if (options.table <= 1) print_interleaved(recording, options.seeds);
  if (options.table != 1) print_later(recording, options.table, options.seeds);
}

Result<Options> options_of(const std::vector<std::string_view>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--fits") {
      options.fits = true;
    } else if (words[i] == "--seeds" && i + 1 < words.size()) {
      const auto seeds = parse_int<int>(words[++i]);
      if (!seeds || *seeds < 3 || *seeds > 10'000)
        return Error{Code::kCorrupt, "--seeds: not a whole number from 3 to 10000"};
      options.seeds = *seeds;
    } else if (words[i] == "--table" && i + 1 < words.size()) {
      const auto table = parse_int<int>(words[++i]);
      if (!table || *table < 1 || *table > 3)
        return Error{Code::kCorrupt, "--table: not 1, 2 or 3"};
      options.table = *table;
    } else if (words[i] == "--from" && i + 1 < words.size()) {
      options.from = words[++i];
    } else if (options.path.empty()) {
      options.path = words[i];
    } else {
      return Error{Code::kCorrupt, fmt::format("unknown word {}", words[i])};
    }
  }
  if (options.path.empty())
    return Error{Code::kCorrupt,
                 "usage: bursts_eval CSV [--seeds N] [--table 1|2|3] [--fits] [--from DATE]"};
  return options;
}

Result<void> run(const std::vector<std::string_view>& words) {
  TRY(const Options options, options_of(words));
  TRY(const Recording recording, read_weeks(options.path, options.from, kWeeks));
  for (const auto& week : recording.weeks)
    if (week.empty()) return Error{Code::kNotFound, "a week without jobs: see --from"};
  if (options.fits) return print_fits(recording);
  fmt::print("{} seeds a figure{}.\n\n", options.seeds,
             options.seeds < 20 ? " (**fewer than 20: a smoke test, no result**)" : "");
  evaluate(recording, options);
  return {};
}

}  // namespace
}  // namespace kansoku::simulate

int main(int argc, char** argv) {
  const auto done = kansoku::simulate::run({argv + 1, argv + argc});
  if (done) return 0;
  fmt::print(stderr, "bursts_eval: {}\n", done.error().what);
  return 1;
}
