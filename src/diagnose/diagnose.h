// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "diagnose/pattern.h"
#include "diagnose/what_if.h"
#include "trace/model.h"
#include "verdict/arbiter.h"

namespace kansoku::diagnose {

/// Phase of a rank's main thread at an instant of a step. Every instant has exactly one phase, so
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

/// Limits and seed of a diagnosis. Its thresholds are constants: diagnose/thresholds.h.
struct Options {
  std::uint64_t seed{1};
  std::uint32_t period_tokens_max{64};
  std::uint32_t resample_count{2000};
  std::uint32_t function_resample_count{200};
  std::uint32_t heat_column_count_max{400};
};

using verdict::Basis;

struct Finding {
  std::string kind;    // slow_input slow_forward slow_backward slow_optimizer slow_other asymmetry
                       // cpu_contention common_input hang stopped
                       // slow_worker stage_imbalance data_imbalance
                       // cpu_throttled page_faults system_calls reclaim interrupts slow_link
                       // regression moving_imbalance uneven_time slowed slow_kernel gpu_starved
                       // launch_bound copy_bound memory_pressure
  std::string detail;  // of a device: the cause within the kind; else empty
  std::vector<std::int32_t> ranks;
  std::string phase;     // the phase that holds the excess; empty for hang and stopped
  std::string function;  // empty: not located
  std::string file;
  std::uint32_t line{0};           // 0 = unknown
  std::vector<std::string> stack;  // outermost first, ends with `function`
  double cost_ms_per_step{0};      // of a job without steps: in each kWindowMs
  double share{0};                 // cost / mean step; 1 for hang and stopped
  Basis basis{Basis::kTest};
  double confidence{0};             // by a test: of rank and function together
  double rank_confidence{0};        // by a test: of the rank alone
  std::optional<double> explained;  // M: the part of the slow-down that goes with this suspect
  std::string verdict;  // of a hang: missing_rank mismatched_collective dead_process stuck_device
                        // stuck_input deadlock; else empty
  std::vector<std::string> evidence;

  /// True if the job makes no more steps: the cost is the time since then, 0 if no file tells it.
  [[nodiscard]] bool is_standstill() const { return kind == "hang" || kind == "stopped"; }
  /// Told by a device's work: a sum, so an observation.
  [[nodiscard]] bool is_of_device() const { return !detail.empty(); }
};
[[nodiscard]] verdict::Claim claim_of(const Finding& finding);

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

/// Place of a rank's training thread in a job that was looked at while it stood.
struct RankPlace {
  std::int32_t rank{0};
  bool waits{false};         // asleep in a call of communication
  bool is_at_work{false};    // neither asleep nor stopped
  bool stands_still{false};  // in one function all the time, called from the same ones
  std::string function, file;
  std::uint32_t line{0};
  std::vector<std::string> stack;  // outermost first, ends with `function`
};

/// Messages between ranks.
struct MessageSummary {
  std::size_t matched{0};                         // sent by one rank and received by another
  std::size_t sends_alone{0}, receives_alone{0};  // whose other side was not seen
};

/// Ranks that pass micro-batches on, and their work between these, with nothing else to wait for.
struct PipelineSummary {
  struct Stage {
    std::vector<std::int32_t> ranks;  // one of each of the equal pipelines
    double work_ms{0};                // of their mean, per step
  };
  std::vector<Stage> stages;
  std::size_t micro_batches{0};  // of a step; 0: not known
  double passes_ms{0};           // from a step's first pass to its last, run again
  double equal_ms{0};            // the same, if all stages had the same work
  double bubble_share{0};        // of the ranks' time that they wait with equal stages
  double uneven_share{0};        // and beyond that, since stages are not equal
};

struct Diagnosis {
  std::string job;        // its name; "" if there is none
  bool is_single{false};  // of one process that tells no rank, which stands as rank 0
  std::vector<std::int32_t> rank_numbers;            // sorted
  std::vector<std::vector<std::int32_t>> rank_pids;  // of the same ranks; any of a rank's
  std::vector<std::int32_t> pids;                    // of all of its processes, sorted
  StepSummary steps;
  std::vector<RankSummary> ranks;  // by rank number
  std::vector<Finding> findings;   // by cost, greatest first; a hang first of all
  std::vector<std::int32_t> victims;
  std::vector<std::int32_t>
      unreadable;              // ranks whose files lost so much that none is told of alone
  double loss_ms_per_step{0};  // mean over steps of (greatest - median) work over ranks
  double not_explained_share{0};
  std::optional<double> slowdown;  // S: step time over that of a job in which nobody is slower
  double slowdown_low{0};          // 2.5 % quantile of S over resampled steps
  std::optional<WhatIf> what_if;   // of operation timelines
  std::optional<MessageSummary> messages;  // nothing: none was seen
  std::optional<PipelineSummary> pipeline;
  std::vector<NamedPattern> patterns;  // of profiles: a rank each, greatest shares
  std::vector<trace::Loss> losses;
  std::vector<std::string> notes;
  // Data that an answer would need, and how to get them; told if nothing was found.
  std::vector<std::string> missing;
  bool moves{false};  // without steps: the stacks of all ranks changed while they were looked at
  std::vector<RankPlace> places;  // without steps, where some ranks wait
  std::string standstill_note;    // the one of `notes` that says why none of them is named
  ViewData view;
  std::size_t heat_column_count_max{400};
  std::vector<Diagnosis> other_jobs;  // of the same recording; worst first, none is worse than this

  /// Costs are parts of windows of time, not of steps.
  [[nodiscard]] bool has_windows() const { return steps.found_by == kFoundByTime; }
  /// True of some ranks, all of them among the unreadable ones.
  [[nodiscard]] bool is_unreadable(std::span<const std::int32_t> of) const {
    return !of.empty() && std::all_of(of.begin(), of.end(), [&](std::int32_t rank) {
      return std::find(unreadable.begin(), unreadable.end(), rank) != unreadable.end();
    });
  }
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

/// Schema "kansoku.diagnosis/3" (docs/formats/diagnosis.md).
[[nodiscard]] Json to_json(const Diagnosis& diagnosis);
/// Data of the HTML report, schema "kansoku.view/2".
[[nodiscard]] Json view_json(const trace::Trace& trace, const Diagnosis& diagnosis);
/// The first finding in one line, "" if there is none.
[[nodiscard]] std::string headline(const Diagnosis& diagnosis);
/// A few plain lines for a terminal, each ended by a newline; of all jobs. Files below `folder`
/// (may be empty) are named from there.
[[nodiscard]] std::string verdict_text(const Diagnosis& diagnosis, std::string_view folder = {});

}  // namespace kansoku::diagnose
