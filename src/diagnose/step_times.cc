// SPDX-License-Identifier: Apache-2.0
#include "diagnose/step_times.h"

#include <utility>

#include "diagnose/internal/steps/collectives.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/steps/steps.h"
#include "diagnose/internal/words.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

JobStepTimes times_of_job(const trace::Trace& trace, const Options& options, JobData& job) {
  JobStepTimes out;
  if (job.ranks.empty()) {
    out.notes = std::move(job.notes);
    out.notes.emplace_back(words::kNoRank);
    return out;
  }
  const Collectives collectives = match_collectives(job);
  const StepTable steps = find_steps(trace, collectives, options, job);
  out.notes = job.notes;
  if (steps.count() == 0) return out;
  out.job = job.name;
  out.found_by = steps.found_by;
  const auto times = measure_steps(job, cut_phases(trace, job, collectives, steps), steps);
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    RankStepTimes rank;
    rank.rank = job.ranks[r].rank;
    rank.pid = job.ranks[r].pid;
    rank.step_ms = times[r].step_ms;
    rank.phase_ms = times[r].phase_ms;
    for (const Interval& step : steps.ranks[r])
      rank.begin_ns.push_back(step.begin_ns);
    out.ranks.push_back(std::move(rank));
  }
  std::vector<double> of_ranks(out.ranks.size());
  for (std::size_t s = 0; s < steps.count(); ++s) {
    for (std::size_t r = 0; r < out.ranks.size(); ++r)
      of_ranks[r] = out.ranks[r].step_ms[s];
    out.durations_ms.push_back(stats::median(of_ranks));
  }
  return out;
}

}  // namespace

Result<JobStepTimes> step_times(const trace::Trace& trace, const Options& options) {
  TRY(JobData job, read_job(trace));
  return times_of_job(trace, options, job);
}

Result<std::vector<JobStepTimes>> step_times_of_jobs(const trace::Trace& trace,
                                                     const Options& options) {
  TRY(std::vector<JobData> jobs, read_jobs(trace));
  std::vector<JobStepTimes> out;
  out.reserve(jobs.size());
  for (JobData& job : jobs)
    out.push_back(times_of_job(trace, options, job));
  return out;
}

}  // namespace kansoku::diagnose
