// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/gang_replay.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "simulate/workload/internal/week.h"
#include "stats/summary.h"

namespace kansoku::simulate {
namespace {

bool takes_part(const Job& job) {
  return job.gpus > 0 && job.duration.count() >= 0;
}

}  // namespace

GangQueue::GangQueue(int gpus, Nanos duration_cap)
    : gpus_(gpus), duration_cap_(duration_cap), free_(gpus) {
  CHECK(gpus >= 1 && duration_cap.count() > 0);
}

void GangQueue::give_back() {
  free_ += running_.top().second;
  running_.pop();
}

std::optional<Nanos> GangQueue::submit(const Job& job) {
  if (!takes_part(job)) return std::nullopt;
  const int wanted = std::min(job.gpus, gpus_);
  now_ = std::max(now_, job.submit);
  while (!running_.empty() && running_.top().first <= now_)
    give_back();
  while (free_ < wanted) {  // ends: all GPUs are free when nothing runs
    now_ = running_.top().first;
    give_back();
  }
  free_ -= wanted;
  running_.emplace(now_ + std::min(job.duration, duration_cap_), wanted);
  return now_ - job.submit;
}

std::vector<double> gang_waits(std::span<const Job> jobs, int gpus, Nanos duration_cap) {
  GangQueue queue(gpus, duration_cap);
  std::vector<double> waits;
  waits.reserve(jobs.size());
  for (const Job& job : jobs)
    if (const auto wait = queue.submit(job)) waits.push_back(internal::seconds(*wait));
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
