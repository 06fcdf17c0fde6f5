// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "diagnose/pattern.h"
#include "diagnose/what_if.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// What a rank's main thread does at an instant of a step. Every instant has exactly one phase, so
/// the phases of a step sum to its duration.
enum class Phase : std::uint8_t {
  kInput,
  kForward,
  kBackward,
  kTransfer,  // blocked in communication after the last rank has arrived
  kWait,      // blocked in communication while another rank has not arrived
  kOptimizer,
  kRunnable,  // ready to run outside of communication, but without a processor
  kOther,
};
inline constexpr std::size_t kPhaseCount = 8;
using PhaseMs = std::array<double, kPhaseCount>;

/// "input", "forward", ... as written in JSON. Any thread.
[[nodiscard]] std::string_view phase_name(Phase phase);

/// Thresholds of the diagnosis; docs/diagnosis.md explains each.
struct Options {
  std::uint64_t seed{1};
  double confidence_min{0.95};             // a rank below it is not named
  double excess_share_min{0.07};           // of the median step: smaller excess is no finding
  double excess_min_ms{1.0};               // and never less than this
  double contention_share_min{0.20};       // of the median step, for processor queueing; less
                                           // where the ranks queue less than that
  double contention_confidence_min{0.99};  // queueing is noisy
  // Queueing that is a finding whatever the peers do, as a share of the rank's mean step: behind
  // processes that are no part of the job (idle hosts: 0.01 to 0.03); behind the job itself where
  // it may not use all processors of the host; behind the job itself anyway (4 ranks on 2
  // processors: 0.34 to 0.45). From `contention_share_min` on that is a note.
  double contention_outside_share_min{0.05};
  double contention_confined_share_min{0.20};
  double contention_job_share_min{0.60};
  double common_input_share_min{0.35};       // of the mean step, on every rank
  double common_input_wait_share_min{0.12};  // the same, where it is mostly spent asleep
  double common_input_asleep_min{0.5};       // what counts as mostly
  double common_input_min_ms{2.0};
  double common_wait_share_min{0.07};        // of every rank's samples, asleep in its own code
  std::uint32_t common_wait_samples_min{8};  // of every rank
  double descend_share_min{0.7};     // a child frame must hold this share of its parent's excess
  double function_support_min{0.8};  // share of resamples that must agree on the function
  double profile_input_share_min{0.10};  // of a profile's window with an idle device, on every rank
  double pattern_beta_min{0.01};  // functions below this share of the window are not compared
  // S from which a job has lost time even if no rank stands out: the lower end of its interval, or
  // S itself where too few steps carry the loss for an interval. Clean runs of 4 ranks on 2
  // processors: 1.02 to 1.07.
  double moving_slowdown_min{1.12};
  double seldom_slowdown_min{1.20};
  // One rank is slowest in more of the steps: that is not moving (a loss that moves over four
  // ranks: 0.28).
  double moving_same_share_max{0.9};
  double slowdown_min{1.05};         // S of an operation timeline: less is no finding
  double explained_min{0.5};         // M from which one worker is named
  double part_explained_min{0.25};   // share of the slow-down from which an imbalance is reported
  double data_correlation_min{0.9};  // of forward and backward durations: the data makes them long
  // Stalls: steps in which a rank works longer than its peers by this share of the median step.
  // They are a finding from this mean cost, as a share of the step, where they fall on one rank
  // more often than chance does in this share of healthy jobs.
  double stall_share_min{0.5};
  double stall_cost_share_min{0.02};
  double stall_chance_max{1e-3};
  double asleep_share_min{0.5};   // of an excess: what the thread waits in explains it
  double stopped_share_min{0.5};  // of an excess: a signal stops the process
  // Work that grows with the data: forward and backward each at least this part of a step, this
  // many times as long as on peers, their logarithms no further apart than this part of the growth,
  // the optimizer grown by no more than this part of it. Set on batches of 6 to 19 times the usual
  // one.
  double uneven_phase_share_min{0.03};
  double uneven_ratio_min{1.15};
  double uneven_apart_max{0.4};
  double uneven_optimizer_max{0.5};
  // Ranks of a job without steps, compared in windows of time: one has processors for this part of
  // the time more than its peers, and this many times as long as the busiest of them. Set on four
  // ranks on two processors, alike: 0.26 of the time each; one with four times the work: 0.46 more.
  double window_ms{100};
  std::uint32_t window_count_min{50};
  double uneven_time_share_min{0.15};
  double uneven_time_ratio_min{1.3};
  // A single process beside its own past: steps from some point on this many times as long as
  // before, with so many steps on either side. None of the 26 healthy loops of
  // tests/false_confidence passes.
  double slowed_ratio_min{1.15};
  double slowed_confidence_min{0.99};
  std::uint32_t slowed_step_count_min{20};
  double clip_share{0.05};         // tails clipped before the steady excess is averaged
  double hang_step_multiple{5};    // stuck for this many mean steps ...
  double hang_min_ms{1000};        // ... and at least this long
  double ended_together_ms{1000};  // ranks that one signal ends that close together: the run's end
  double ended_after_signal_ms{10'000};  // a process that ends so soon after a signal: by it;
                                         // chosen, not measured
  std::uint32_t period_tokens_max{64};
  std::uint32_t repeat_count_min{10};   // repeats of the step's word for full confidence
  std::uint32_t repeat_count_floor{6};  // fewer: no steps are found at all
  std::uint32_t warmup_step_count{3};   // left out of all statistics
  std::uint32_t resample_count{2000};
  std::uint32_t function_resample_count{200};
  std::uint32_t heat_column_count_max{400};
};

struct Finding {
  std::string kind;  // slow_input slow_forward slow_backward slow_optimizer slow_other asymmetry
                     // cpu_contention common_input hang stopped
                     // slow_worker stage_imbalance data_imbalance
                     // cpu_throttled slow_link regression moving_imbalance uneven_time slowed
  std::vector<std::int32_t> ranks;
  std::string phase;     // the phase that holds the excess; empty for hang and stopped
  std::string function;  // empty: not located
  std::string file;
  std::uint32_t line{0};            // 0 = unknown
  std::vector<std::string> stack;   // outermost first, ends with `function`
  double cost_ms_per_step{0};       // of a job without steps: in each Options::window_ms
  double share{0};                  // cost / mean step; 1 for hang and stopped
  double confidence{0};             // of rank and function together
  double rank_confidence{0};        // of the rank alone
  std::optional<double> explained;  // M: the part of the slow-down that goes with this suspect
  std::string verdict;  // of a hang: missing_rank mismatched_collective dead_process stuck_device
                        // stuck_input deadlock; else empty
  std::vector<std::string> evidence;
};

/// StepSummary::found_by of a job without steps whose ranks were compared in windows of time.
inline constexpr std::string_view kFoundByTime = "time";

struct StepSummary {
  std::size_t count{0};  // steps that all ranks have in common, warm-up left out
  double median_ms{0};
  double p95_ms{0};
  double mean_ms{0};
  std::string found_by{"none"};      // "optimizer", "backward", "input", "collectives", "none",
                                     // or kFoundByTime
  std::vector<std::string> word;     // the events that repeat once a step
  std::vector<double> durations_ms;  // of each
};

/// Means over the counted steps of one rank.
struct RankSummary {
  std::int32_t rank{0};
  std::int32_t pid{0};
  PhaseMs phase_ms{};
  double step_ms{0};
  double work_ms{0};  // step without communication and without processor queueing
};

struct Span {
  Phase phase{Phase::kOther};
  double start_ms{0};  // since the first rank began this step
  double duration_ms{0};
  bool is_critical{false};  // on the chain of dependencies that made the step as long as it was
  std::string name{};       // of the operation; empty: the phase says it
};

struct FunctionRow {
  std::string function;
  std::string file;
  std::uint32_t line{0};
  double culprit_ms{0};  // per step, this frame on top of the stack; without one: mean of all
  double peers_ms{0};    // mean over the other ranks
};

/// Ranks that stand still in the same place.
struct HangGroup {
  std::string place;  // an operation, or the innermost function
  std::vector<std::int32_t> ranks;
  std::vector<std::string> stack;  // outermost first; may be empty
  bool is_culprit{false};
};

/// Data for pictures; `view_json` writes it out.
struct ViewData {
  std::vector<std::vector<double>> work_ms;  // [rank][step]
  std::vector<std::vector<double>> wait_ms;
  std::size_t worst_step{0};
  std::vector<std::vector<Span>> worst_spans;  // [rank]
  std::optional<std::int32_t> function_rank;   // the culprit that `functions` is about
  std::vector<FunctionRow> functions;
  std::vector<HangGroup> hang_groups;  // culprits first
  // Slow-down by worker, [stage][data-parallel rank]: the lesser of the stage's and the rank's.
  std::vector<std::vector<double>> worker_scores;
};

/// The answer in a word.
enum class Verdict : std::uint8_t { kFindings, kNothingFound, kNotEnoughData };
/// "findings", "nothing_found", "not_enough_data".
[[nodiscard]] std::string_view verdict_name(Verdict verdict);

struct Diagnosis {
  std::string job;        // its name; "" if there is none
  bool is_single{false};  // of one process that tells no rank, which stands as rank 0
  std::size_t rank_count{0};
  StepSummary steps;
  std::vector<RankSummary> ranks;  // by rank number
  std::vector<Finding> findings;   // by cost, greatest first; a hang first of all
  std::vector<std::int32_t> victims;
  double loss_ms_per_step{0};  // mean over steps of (greatest - median) work over ranks
  double not_explained_share{0};
  std::optional<double> slowdown;      // S: step time over that of a job in which nobody is slower
  double slowdown_low{0};              // 2.5 % quantile of S over resampled steps
  double slowdown_confidence{0};       // share of them with Options::moving_slowdown_min or more
  std::optional<WhatIf> what_if;       // of operation timelines
  std::vector<NamedPattern> patterns;  // of profiles: a rank each, greatest shares
  std::vector<trace::Loss> losses;
  std::vector<std::string> notes;
  // What there would have to be for an answer, and how to get it; told where nothing was found.
  std::vector<std::string> missing;
  ViewData view;
  std::size_t heat_column_count_max{400};
  std::vector<Diagnosis> other_jobs;  // of the same recording; worst first, none is worse than this

  /// Costs are parts of windows of time, not of steps.
  [[nodiscard]] bool has_windows() const { return steps.found_by == kFoundByTime; }
  [[nodiscard]] Verdict verdict() const {
    if (!findings.empty()) return Verdict::kFindings;
    return missing.empty() ? Verdict::kNothingFound : Verdict::kNotEnoughData;
  }
};

/// Finds the ranks that hold a job back, and the function and cost of each, in every job of the
/// trace; an unusable trace gives a Diagnosis without findings, in which `missing` says why. Fails
/// with kCorrupt if columns of `trace` differ in length and with kUnsupported if an option is out
/// of range; never on odd events. Deterministic for `options.seed`. Pure; any thread. O(n log n) in
/// events.
[[nodiscard]] Result<Diagnosis> diagnose(const trace::Trace& trace, const Options& options);

/// Schema "kansoku.diagnosis/2" (docs/formats/diagnosis.md).
[[nodiscard]] Json to_json(const Diagnosis& diagnosis);
/// Schema "kansoku.view/2": what the HTML report draws.
[[nodiscard]] Json view_json(const trace::Trace& trace, const Diagnosis& diagnosis);
/// The first finding in one line, "" if there is none.
[[nodiscard]] std::string headline(const Diagnosis& diagnosis);
/// A few plain lines for a terminal, each ended by a newline; of all jobs. Files below `folder`
/// (may be empty) are named from there.
[[nodiscard]] std::string verdict_text(const Diagnosis& diagnosis, std::string_view folder = {});

}  // namespace kansoku::diagnose
