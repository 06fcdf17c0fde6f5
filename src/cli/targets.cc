// SPDX-License-Identifier: Apache-2.0
#include "cli/targets.h"

#include <fmt/format.h>

#include "capture/job.h"

namespace kansoku::cli {
namespace {

Result<std::vector<std::int32_t>> pids_of_job(const sys::Procfs& procfs, const std::string& name) {
  std::string known;
  for (const capture::Job& job : capture::find_jobs(procfs)) {
    if (job.name == name) {
      std::vector<std::int32_t> pids;
      for (const capture::JobProcess& process : job.processes)
        pids.push_back(process.pid);
      return pids;
    }
    known += (known.empty() ? "" : ", ") + job.name;
  }
  return Error{
      Code::kNotFound, fmt::format("find job {}: not running on this host", name),
      known.empty() ? "no distributed job runs here; see `kansoku jobs`" : "running: " + known};
}

}  // namespace

Result<void> observe_targets(capture::Recorder& recorder, const std::vector<std::int32_t>& pids,
                             const std::string& job, const sys::Procfs& procfs) {
  for (const std::int32_t pid : pids)
    TRY_VOID(recorder.observe(pid, true));
  if (job.empty()) return {};
  TRY(const auto members, pids_of_job(procfs, job));
  for (const std::int32_t pid : members) {
    // A member that ended meanwhile is no reason to give up on the others.
    if (auto observed = recorder.observe(pid, true); !observed && members.size() == 1)
      return observed;
  }
  return {};
}

}  // namespace kansoku::cli
