// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "common/time.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate {

struct GangReplay {
  std::size_t jobs{0};
  double mean_wait_s{0};
  double p50_wait_s{0}, p90_wait_s{0}, p99_wait_s{0};
  std::size_t clamped_jobs{0};  // asked for more GPUs than there are and got all
};

/// One queue in front of `gpus` >= 1 equal GPUs, strictly first come first served, each job
/// starting with all its GPUs at once. A copy goes on from the same state: possible next jobs can
/// be tried on it. Not shared between threads.
class GangQueue {
 public:
  /// Durations longer than `duration_cap` (> 0) are cut.
  explicit GangQueue(int gpus, Nanos duration_cap = std::chrono::hours(7 * 24));

  /// Submits a job, not before the one before it, and gives its wait. A job that asks for more GPUs
  /// than there are gets all. Nothing for a job without GPUs or duration, which does not take part.
  std::optional<Nanos> submit(const Job& job);

 private:
  using End = std::pair<Nanos, int>;  // when, how many GPUs
  void give_back();

  int gpus_;
  Nanos duration_cap_;
  Nanos now_{0};
  int free_;
  std::priority_queue<End, std::vector<End>, std::greater<>> running_;
};

/// The yardstick of queues: `jobs`, sorted by submission, through a GangQueue. Deterministic; any
/// thread; O(n log n).
/// Source: textbook; the same algorithm as a Lindley recursion for gangs.
[[nodiscard]] GangReplay replay_gangs(std::span<const Job> jobs, int gpus,
                                      Nanos duration_cap = std::chrono::hours(7 * 24));

/// The wait of each job that takes part, in order of submission, seconds.
[[nodiscard]] std::vector<double> gang_waits(std::span<const Job> jobs, int gpus,
                                             Nanos duration_cap = std::chrono::hours(7 * 24));

/// GPU seconds that the jobs ask for per second of `span`, durations cut: the offered load in GPUs.
[[nodiscard]] double offered_gpus(std::span<const Job> jobs, Nanos span,
                                  Nanos duration_cap = std::chrono::hours(7 * 24));

/// GPUs of a cluster on which the jobs are `load` (0..1]: floor(offered / load), at least 1.
[[nodiscard]] int gpus_for_load(std::span<const Job> jobs, Nanos span, double load,
                                Nanos duration_cap = std::chrono::hours(7 * 24));

}  // namespace kansoku::simulate
