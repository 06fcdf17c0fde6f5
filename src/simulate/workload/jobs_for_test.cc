// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/jobs_for_test.h"

#include <algorithm>
#include <cmath>

#include "common/rng.h"
#include "simulate/workload/internal/week.h"

namespace kansoku::simulate {

Workload bursty_workload(int weeks, std::uint64_t seed) {
  Workload workload;
  workload.source = "made up";
  workload.epoch_in_week_s = 0;
  workload.groups = {"", "vc1", "vc2", "vc3"};
  RandomStream random(seed, "bursty");
  for (std::int64_t hour = 0; hour < std::int64_t{weeks} * kHoursOfWeek; ++hour) {
    const bool day = hour % 24 >= 8 && hour % 24 < 20;
    for (double at_s = -std::log(random.uniform()) * (day ? 900 : 3600); at_s < 3600;
         at_s -= std::log(random.uniform()) * (day ? 900 : 3600)) {
      const double length = std::exp(6 + 1.5 * stats::normal_quantile(random.uniform()));
      const std::int32_t gpus = 1 << random.below(4);
      const auto group = static_cast<std::uint32_t>(1 + random.below(3));
      const auto jobs = random.uniform() < 0.15 ? 10 + random.below(40) : 1 + random.below(3);
      double offset_s = 0;
      for (std::uint64_t i = 0; i < jobs; ++i) {
        Job job;
        job.submit = Nanos{hour * internal::kHourNs} + internal::nanos_of(at_s + offset_s);
        job.duration =
            internal::nanos_of(length * std::exp(0.3 * stats::normal_quantile(random.uniform())));
        job.group = group;
        job.gpus = gpus;
        job.gpu_milli = 1000;
        workload.jobs.push_back(job);
        offset_s -= std::log(random.uniform()) * 10;
      }
    }
  }
  sort_jobs(workload);
  return workload;
}

std::vector<Job> jobs_before(const ArrivalModel& model, std::int64_t start_in_week_s,
                             std::uint64_t seed, Nanos span) {
  const auto process = start_arrivals(model, start_in_week_s, RandomStream(seed, "arrivals"));
  std::vector<Job> jobs;
  for (auto next = process->next(); next && next->at < span; next = process->next()) {
    Job job = next->job == nullptr ? Job{} : *next->job;
    job.submit = next->at;
    jobs.push_back(job);
  }
  return jobs;
}

}  // namespace kansoku::simulate
