// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
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

/// The yardstick of queues: `jobs`, sorted by submission, on `gpus` >= 1 equal GPUs, strictly first
/// come first served, each job starting with all its GPUs at once. A job that asks for more than
/// there are gets all; jobs without GPUs or duration do not take part. Durations longer than
/// `duration_cap` (> 0) are cut. Deterministic; any thread; O(n log n).
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
