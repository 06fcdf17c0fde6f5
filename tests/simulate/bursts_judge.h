// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bursts_models.h"
#include "simulate/workload/gang_replay.h"

namespace kansoku::simulate {

inline constexpr double kLoad = 0.8;

/// The recorded weeks on the cluster on which they are a load of .80: what a model is judged by.
struct Yardstick {
  Workload joined;
  int weeks{0};
  int gpus{0};
  double load{0};
  GangReplay real;
};
[[nodiscard]] Yardstick yardstick_of(const Recording& recording, const std::vector<int>& numbers);

/// Median over seeds, as a ratio to the real value, with a 95 % interval of the median (bootstrap
/// over seeds), and whether the real value lies between the 5 % and the 95 % quantile of the seeds.
struct Ratio {
  double median{0}, low{0}, high{0};
  bool in_band{false};
};

struct Judgement {
  Ratio mean, p90;
  double load{0};       // achieved, median; the real one is .80
  double log_error{0};  // mean of |log ratio| of mean and p90, 60 s added to both sides
};

/// Replays `seeds` synthetic streams of the yardstick's length on its cluster.
[[nodiscard]] Judgement judge(const Stream& stream, const Yardstick& yardstick, int seeds);

/// The same when each day begins with the queue that the recording left: the knowledge of a
/// forecast for tomorrow. In each stream, a day's jobs are submitted behind the recorded ones
/// before it.
[[nodiscard]] Judgement judge_daily(const Stream& stream, const Yardstick& yardstick, int seeds);

/// Seconds that a job of one GPU would have waited behind `jobs`, mean over every tenth minute of
/// `weeks`: a queue as time sees it, which is not how those see it who come when it is short.
[[nodiscard]] double probe_wait_s(const std::vector<Job>& jobs, int gpus, int weeks);

/// GPUs busy on an endless cluster, every tenth minute of the last `weeks` - 1: what the jobs ask
/// for at once, before any queue.
[[nodiscard]] std::vector<double> busy_gpus(const std::vector<Job>& jobs, int weeks);

/// A candidate's errors on weeks that were left out of its fit, fitting weeks alone.
struct Score {
  std::size_t candidate{0};
  double log_error{0};
};

/// Leave one fitting week out, fit to the others, judge on it; mean over the weeks. By rising
/// error. A candidate that cannot be fitted is left out.
[[nodiscard]] std::vector<Score> leave_one_out(const Recording& recording,
                                               const std::vector<Candidate>& candidates,
                                               const std::vector<int>& fitting, int seeds);

/// "1.08 [0.92, 1.31]", with a cross behind it if the real value lies outside the band.
[[nodiscard]] std::string text_of(const Ratio& ratio);

}  // namespace kansoku::simulate
