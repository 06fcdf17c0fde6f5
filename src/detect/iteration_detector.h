// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "detect/thresholds.h"

namespace kansoku::detect {

/// Defaults after PerfTracker's parameters (second-hand), where it has them.
struct IterationOptions {
  std::uint32_t period_max{64};  // events of one iteration; ours
  std::uint32_t repeats{
      kIterationRepeats};  // identical words in a row until the word counts as learned
  std::uint32_t average_count{kIterationsAveraged};  // iterations in the mean that is watched
  double slow_ratio{kIterationSlowRatio};            // above the recent shortest mean
  double deviation_multiple{
      kIterationDeviations};  // slow also needs this many standard errors; ours
  double swing_multiple{
      kIterationSwing};  // and, above the median mean, the swing of means below it; ours
  double blocked_multiple{kBlockedMultiple};   // of the mean iteration without an event
  std::int64_t blocked_min_ns{kBlockedMinNs};  // and never less; ours
  std::uint32_t relearn_events{200};           // in a row that do not fit the word
  std::uint32_t baseline_means{
      100};  // means that make the recent past, one each tenth average; ours
};

/// Signal about one rank, from an event or the passing of time.
enum class IterationSignal : std::uint8_t {
  kNone,
  kLearned,    // the word is known now; iterations are measured from here on
  kForgotten,  // the word no longer fits: learning again
  kSlow,
  kBlocked,
};

/// Learns the word of events that repeats once an iteration, then watches the length of iterations:
/// both from first to last event of the word and from one word to the next (the first leaves out
/// the time between steps). Fires kSlow once when the mean of the last `average_count` iterations
/// exceeds the smallest such mean of the recent past, and kBlocked once when events stop; after a
/// kSlow the past begins anew, so a lasting change is told once. Constant memory; not shared
/// between threads; deterministic. Source: PerfTracker, arXiv 2506.08528 (second-hand); smoothing,
/// expiry and the test against the standard error are ours.
class IterationDetector {
 public:
  enum class State : std::uint8_t { kLearning, kTracking };

  explicit IterationDetector(const IterationOptions& options = {});

  /// An event of kind `token`, in order of time.
  IterationSignal on_event(std::uint32_t token, std::int64_t time_ns);
  /// Time passes without an event.
  IterationSignal on_time(std::int64_t now_ns);
  /// Forgets how long iterations were, keeps the word: after a change that is known to be harmless.
  /// Until the next iteration it is still known how long a silence is too long.
  void forget_times();
  /// Nobody was told of the silence: on_time says kBlocked once more.
  void rearm_blocked() { has_told_blocked_ = false; }

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const std::vector<std::uint32_t>& word() const { return word_; }
  [[nodiscard]] std::uint64_t iteration_count() const { return iterations_; }
  /// Mean wall period of the last iterations; 0 before the first.
  [[nodiscard]] double mean_ns() const { return wall_.mean(); }
  /// The same; right after the times were forgotten, the value from before.
  [[nodiscard]] double expected_ns() const { return mean_ns() > 0 ? mean_ns() : forgotten_ns_; }
  /// Smallest mean of the recent past; 0 if not known yet.
  [[nodiscard]] double baseline_ns() const { return wall_.baseline(); }
  [[nodiscard]] std::int64_t last_event_ns() const { return last_event_ns_; }

 private:
  /// Lengths of iterations: a ring of the last ones, and means of the recent past.
  class Lengths {
   public:
    explicit Lengths(const IterationOptions& options);
    void add(double length_ns);
    void clear();
    [[nodiscard]] double mean() const;
    [[nodiscard]] double baseline() const;
    [[nodiscard]] bool is_slow() const;
    /// The longest mean that is usual: iterations on processors that are shared swing by more than
    /// they scatter, so that the shortest of many means says little. Infinite while not known.
    [[nodiscard]] double usual_limit() const;

   private:
    const IterationOptions& options_;
    std::vector<double> ring_;
    std::size_t next_{0};
    std::uint64_t count_{0};
    double sum_{0}, squares_{0};
    std::vector<double> means_;
    std::size_t next_mean_{0};
    std::uint64_t mean_count_{0};
  };

  IterationSignal learn(std::uint32_t token, std::int64_t time_ns);
  IterationSignal track(std::uint32_t token, std::int64_t time_ns);
  IterationSignal end_iteration(std::int64_t time_ns);
  [[nodiscard]] bool strays_are_regular();
  void start_learning();
  [[nodiscard]] bool is_all(std::uint32_t period) const;
  void adopt(std::uint32_t period);

  IterationOptions options_;
  State state_{State::kLearning};
  // Learning: the last events, and for each period how many events in a row repeat that far back.
  std::vector<std::uint32_t> history_;
  std::uint64_t history_count_{0};
  std::vector<std::uint32_t> run_;
  // Tracking.
  std::vector<std::uint32_t> word_;
  std::size_t position_{0};
  bool is_whole_{false};  // the word in hand had no stray event so far
  std::uint32_t strays_{0}, regular_strays_{0};
  std::uint64_t words_since_stray_{0};
  bool was_inner_loop_{false};  // the last word was a loop inside of the iteration
  bool is_settled_{false};      // no longer word was found for long: do not look for one again
  std::uint64_t iterations_{0};
  std::int64_t word_begin_ns_{0}, last_event_ns_{0};
  bool has_begin_{false}, has_told_blocked_{false};
  double forgotten_ns_{0};
  Lengths wall_, inner_;
};

}  // namespace kansoku::detect
