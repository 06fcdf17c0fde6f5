// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bursts_weeks.h"
#include "simulate/workload/arrivals.h"

namespace kansoku::simulate {

/// Jobs of so many weeks from a Monday 00:00, for a seed.
using Stream = std::function<std::vector<Job>(std::uint64_t seed, int weeks)>;

/// A way to learn a stream from some weeks (joined, `weeks` of them).
struct Candidate {
  std::string name;
  std::function<Result<Stream>(const Workload& joined, int weeks)> fit;
};

/// A session as recorded: when it began, and its jobs since then.
struct Burst {
  std::int64_t at_ns{0};
  std::vector<Job> jobs;
};

/// In order of their starts, which count from time 0 of `joined`.
[[nodiscard]] std::vector<Burst> bursts_of(const Workload& joined, double gap_s);
void sort_by_time(std::vector<Job>& jobs);

/// A kind of simulate/workload; where it gives times only, each job's (duration, GPUs) is that of a
/// random recorded job.
[[nodiscard]] Candidate arrival_candidate(std::string name, ArrivalModel::Kind kind,
                                          double session_gap_s = 120);
/// PipeSim's arrivals: for each hour of week the closest of log-normal, exponentiated Weibull and
/// Pareto.
[[nodiscard]] Candidate pipesim_candidate();
/// The models that a choice is made from; PipeSim's, which they are compared with, is none of them.
[[nodiscard]] std::vector<Candidate> all_candidates();

}  // namespace kansoku::simulate
