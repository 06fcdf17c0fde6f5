// SPDX-License-Identifier: Apache-2.0
#include "simulate/run.h"

#include <cmath>
#include <mutex>
#include <optional>
#include <thread>

#include "simulate/internal/platform.h"
#include "stats/fit.h"

namespace kansoku::simulate {

Result<Replication> run_replication(const Experiment& experiment, int index,
                                    const RunOptions& options, RunControl& control) {
  RunOptions of_this = options;
  of_this.records = options.records || (options.records_of_first && index == 0);
  TRY(const auto platform, Platform::make(experiment, index, of_this));
  TRY_VOID(platform->run(control));
  return platform->report();
}

Result<Replications> run_replications(const Experiment& experiment, int count, int threads,
                                      const RunOptions& options, RunControl& control) {
  std::vector<std::optional<Result<Replication>>> results(static_cast<std::size_t>(count));
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int index = next++; index < count && !control.stop; index = next++)
      results[static_cast<std::size_t>(index)].emplace(
          run_replication(experiment, index, options, control));
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < std::min(threads, count); ++i)
      workers.emplace_back(work);
    work();
  }
  Replications out;
  for (auto& result : results) {
    if (!result || (!*result && result->error().code == Code::kTimeout)) {
      out.stopped = true;
      continue;
    }
    if (!*result) return std::move(*result).error();
    out.finished.push_back(std::move(*result).value());
  }
  return out;
}

Estimate estimate(const std::vector<double>& values) {
  Estimate out;
  out.n = static_cast<int>(values.size());
  if (values.empty()) return out;
  double sum = 0;
  for (const double value : values)
    sum += value;
  out.mean = out.low = out.high = sum / out.n;
  if (out.n < 2) return out;
  double squares = 0;
  for (const double value : values)
    squares += (value - out.mean) * (value - out.mean);
  out.sd = std::sqrt(squares / (out.n - 1));
  // The rounding of equal values is no spread.
  if (out.sd <= 1e-12 * std::abs(out.mean)) out.sd = 0;
  const double half = stats::student_quantile(0.975, out.n - 1) * out.sd / std::sqrt(out.n);
  out.low -= half;
  out.high += half;
  return out;
}

}  // namespace kansoku::simulate
