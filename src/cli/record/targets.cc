// SPDX-License-Identifier: Apache-2.0
#include "cli/record/targets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <set>

#include "capture/job.h"

namespace kansoku::cli {
namespace {

// Whoever runs a program that this one runs under, such as process 1, would observe the whole host,
// and this program with it.
Result<void> check_not_above(std::int32_t pid, const sys::Procfs& procfs) {
  constexpr int kDepthMax = 64;
  std::int32_t at = ::getpid();
  for (int depth = 0; depth < kDepthMax && at > 0; ++depth) {
    const bool is_above = at == pid;
    const auto stat = procfs.stat(at);
    if (!is_above && !stat) return {};
    if (!is_above) {
      at = stat->parent_pid;
      continue;
    }
    return Error{Code::kUnsupported,
                 fmt::format("observe process {}: it is a parent of this command, so the recording "
                             "would hold everything below it",
                             pid),
                 "name the program itself, or its job (see `kansoku jobs`)"};
  }
  return {};
}

}  // namespace

Result<std::vector<std::int32_t>> pids_of_job(const sys::Procfs& procfs, const std::string& name) {
  std::string known;
  std::set<std::int32_t> pids;
  for (const capture::Job& job : capture::find_jobs(procfs)) {
    known += (known.empty() ? "" : ", ") + job.name;
    if (!name.empty() && job.name != name) continue;
    for (const capture::JobProcess& process : job.processes)
      pids.insert(process.pid);
  }
  if (!pids.empty()) return std::vector<std::int32_t>(pids.begin(), pids.end());
  return Error{
      Code::kNotFound,
      name.empty() ? std::string("find jobs: none runs on this host")
                   : fmt::format("find job {}: not running on this host", name),
      known.empty() ? "no distributed job runs here; see `kansoku jobs`" : "running: " + known};
}

Result<void> observe_targets(capture::Recorder& recorder, const std::vector<std::int32_t>& pids,
                             const std::string& job, const sys::Procfs& procfs) {
  for (const std::int32_t pid : pids) {
    TRY_VOID(check_not_above(pid, procfs));
    if (!procfs.stat(pid))
      return Error{Code::kNotFound, fmt::format("observe process {}: no such process", pid)};
  }
  if (!pids.empty()) recorder.observe_trees(pids);
  if (job.empty()) return {};
  TRY(const auto members, pids_of_job(procfs, job));
  // A member that ended meanwhile is no reason to give up on the others.
  if (members.size() == 1) return recorder.observe(members.front(), true);
  recorder.observe_trees(members);
  return {};
}

}  // namespace kansoku::cli
