// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/gang_replay.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "common/check.h"
#include "simulate/workload/internal/week.h"
#include "stats/summary.h"

namespace kansoku::simulate {
namespace {

bool takes_part(const Job& job) {
  return job.gpus > 0 && job.duration.count() >= 0;
}

}  // namespace

std::vector<double> gang_waits(std::span<const Job> jobs, int gpus, Nanos duration_cap) {
  CHECK(gpus >= 1 && duration_cap.count() > 0);
  using End = std::pair<Nanos, int>;  // when, how many GPUs
  std::priority_queue<End, std::vector<End>, std::greater<>> running;
  std::vector<double> waits;
  waits.reserve(jobs.size());
  Nanos now{0};
  int free = gpus;
  const auto give_back = [&] {
    free += running.top().second;
    running.pop();
  };
  for (const Job& job : jobs) {
    if (!takes_part(job)) continue;
    const int wanted = std::min(job.gpus, gpus);
    now = std::max(now, job.submit);
    while (!running.empty() && running.top().first <= now)
      give_back();
    while (free < wanted) {  // ends: all GPUs are free when nothing runs
      now = running.top().first;
      give_back();
    }
    waits.push_back(internal::seconds(now - job.submit));
    free -= wanted;
    running.emplace(now + std::min(job.duration, duration_cap), wanted);
  }
  return waits;
}

GangReplay replay_gangs(std::span<const Job> jobs, int gpus, Nanos duration_cap) {
  std::vector<double> waits = gang_waits(jobs, gpus, duration_cap);
  GangReplay out;
  out.jobs = waits.size();
  for (const Job& job : jobs)
    out.clamped_jobs += takes_part(job) && job.gpus > gpus ? 1 : 0;
  std::sort(waits.begin(), waits.end());  // the summaries below sort in any case
  out.mean_wait_s = stats::mean(waits);
  out.p50_wait_s = stats::quantile(waits, 0.5);
  out.p90_wait_s = stats::quantile(waits, 0.9);
  out.p99_wait_s = stats::quantile(waits, 0.99);
  return out;
}

double offered_gpus(std::span<const Job> jobs, Nanos span, Nanos duration_cap) {
  CHECK(span.count() > 0);
  double gpu_s = 0;
  for (const Job& job : jobs)
    if (takes_part(job))
      gpu_s += job.gpus * internal::seconds(std::min(job.duration, duration_cap));
  return gpu_s / internal::seconds(span);
}

int gpus_for_load(std::span<const Job> jobs, Nanos span, double load, Nanos duration_cap) {
  CHECK(load > 0);
  return std::max(1, static_cast<int>(std::floor(offered_gpus(jobs, span, duration_cap) / load)));
}

}  // namespace kansoku::simulate
