// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/device_work.h"

#include <cstdint>
#include <utility>

#include "diagnose/device_findings.h"
#include "diagnose/step_times.h"

namespace kansoku::cli {

std::vector<gpu::activity::ProcessSteps> steps_of_jobs(const trace::Trace& trace) {
  std::vector<gpu::activity::ProcessSteps> out;
  const auto jobs = diagnose::step_times_of_jobs(trace, {});
  if (!jobs) return out;
  for (const diagnose::JobStepTimes& job : *jobs) {
    for (const diagnose::RankStepTimes& rank : job.ranks) {
      gpu::activity::ProcessSteps steps{.pid = rank.pid, .steps = {}};
      for (std::size_t s = 0; s < rank.begin_ns.size() && s < rank.step_ms.size(); ++s) {
        const auto length_ns = static_cast<std::int64_t>(rank.step_ms[s] * 1e6);
        steps.steps.push_back({rank.begin_ns[s], rank.begin_ns[s] + length_ns});
      }
      out.push_back(std::move(steps));
    }
  }
  return out;
}

Result<void> add_device_work(const Sources& sources, diagnose::Diagnosis& diagnosis) {
  const trace::Trace& trace = sources.trace;
  gpu::activity::Options options;
  // A profiler marks steps itself.
  if (sources.kind == Sources::Kind::kRecording) options.steps = steps_of_jobs(trace);
  options.jobs.push_back(diagnosis.pids);
  for (const diagnose::Diagnosis& other : diagnosis.other_jobs)
    options.jobs.push_back(other.pids);
  TRY(const gpu::activity::WorkReport work, gpu::activity::report_of(trace, options));
  diagnose::DeviceJudgement judged;
  for (const gpu::activity::DeviceFigures& device : work.devices) {
    if (device.is_judged) judged.pids.push_back(device.pid);
  }
  for (const gpu::activity::Finding& finding : work.findings) {
    judged.findings.push_back({.kind = finding.kind,
                               .detail = finding.detail,
                               .ranks = finding.ranks,
                               .pids = finding.pids,
                               .share = finding.share,
                               .verdict = finding.verdict,
                               .evidence = finding.evidence});
  }
  for (const gpu::activity::DeviceNote& note : work.device_notes)
    judged.notes.emplace_back(note.pid, note.text);
  diagnose::add_device_findings(trace, judged, diagnosis);
  return {};
}

}  // namespace kansoku::cli
