// SPDX-License-Identifier: Apache-2.0
#include "capture/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <set>
#include <string_view>

#include "capture/internal/connections.h"
#include "capture/internal/group_objects.h"
#include "capture/internal/process_table.h"
#include "common/parse.h"
#include "common/text.h"

namespace kansoku::capture {
namespace {

constexpr std::int32_t kRankMax = (1 << 20) - 1;
constexpr std::size_t kNameCharsMax = 128;
constexpr std::size_t kCmdlineCharsMax = 1024;

using Environ = std::map<std::string, std::string>;

std::string text_of(const Environ& environ, const char* key) {
  const auto found = environ.find(key);
  if (found == environ.end()) return {};
  // Names of jobs are printed, and pasted into commands.
  constexpr std::string_view kMarks = "._:/@+-=,%[]~";
  std::string out = found->second.substr(0, kNameCharsMax);
  for (char& c : out)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && kMarks.find(c) == kMarks.npos) c = '_';
  return out;
}

std::int32_t number_of(const Environ& environ, const char* key) {
  const auto found = environ.find(key);
  if (found == environ.end()) return trace::kNoRank;
  const auto value = parse_int<std::int32_t>(found->second);
  return value && *value >= 0 && *value <= kRankMax ? *value : trace::kNoRank;
}

struct Convention {
  const char* rank;
  const char* world_size;
  const char* local_rank;
};
constexpr Convention kTorch{"RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Convention kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Convention kSlurm{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};

std::string torch_job(const Environ& environ) {
  const std::string address = text_of(environ, "MASTER_ADDR");
  return fmt::format("{}:{}", address.empty() ? "localhost" : address,
                     text_of(environ, "MASTER_PORT"));
}

std::string mpi_job(const Environ& environ) {
  const std::string space = text_of(environ, "PMIX_NAMESPACE");
  return "mpi-" + (space.empty() ? text_of(environ, "OMPI_MCA_ess_base_jobid") : space);
}

std::string slurm_job(const Environ& environ) {
  return fmt::format("slurm-{}.{}", text_of(environ, "SLURM_JOB_ID"),
                     text_of(environ, "SLURM_STEP_ID"));
}

struct RankVariables {
  Convention keys;
  std::string (*job)(const Environ&);
};
constexpr std::array<RankVariables, 3> kSources{
    {{kTorch, torch_job}, {kOpenMpi, mpi_job}, {kSlurm, slurm_job}}};

/// Adds those that tell a job, or are in a process group.
void add_processes(const sys::Procfs& procfs, const std::vector<std::int32_t>& pids,
                   ProcessTable& table) {
  GroupObjects objects(procfs);
  // Memory takes a tenth of a second to search. Whoever was told its rank is asked for its groups
  // only where others were not told theirs.
  std::vector<JobProcess> told, untold;
  for (const std::int32_t pid : pids) {
    auto process = describe_process(procfs, pid);
    if (!process) continue;
    (process->facts.rank != trace::kNoRank ? told : untold).push_back(std::move(process).value());
  }
  std::map<std::int32_t, std::vector<GroupSeat>> seats;
  bool is_any_untold = false;
  for (const JobProcess& process : untold) {
    const auto& own = seats[process.pid] = objects.of(process.pid, process.parent_pid);
    is_any_untold = is_any_untold || !own.empty();
  }
  for (const JobProcess& process : told)
    if (is_any_untold) seats[process.pid] = objects.of(process.pid, process.parent_pid);
  for (auto* const processes : {&untold, &told}) {
    for (JobProcess& process : *processes) {
      const std::int32_t pid = process.pid;
      const std::vector<GroupSeat>& own = seats[pid];
      if (process.facts.job.empty() && own.empty()) continue;
      table.add(std::move(process), {});
      for (const GroupSeat& seat : own)
        static_cast<void>(table.note_seat(seat));
    }
  }
}

}  // namespace

RankFacts rank_facts(const Environ& untrusted_environ) {
  for (const RankVariables& source : kSources) {
    const std::int32_t rank = number_of(untrusted_environ, source.keys.rank);
    const std::int32_t world = number_of(untrusted_environ, source.keys.world_size);
    if (rank == trace::kNoRank || world < 1 || rank >= world) continue;
    return {source.job(untrusted_environ), rank,
            number_of(untrusted_environ, source.keys.local_rank), world};
  }
  return {};
}

bool is_wrapper(std::string_view comm) {
  static constexpr std::array<std::string_view, 22> kWrappers{
      "bash",    "sh",      "dash",     "zsh",     "env",     "nice", "taskset", "ip",
      "numactl", "timeout", "torchrun", "mpirun",  "orterun", "srun", "sudo",    "su",
      "runuser", "setpriv", "chroot",   "unshare", "nsenter", "tini"};
  return std::find(kWrappers.begin(), kWrappers.end(), comm) != kWrappers.end();
}

namespace {

std::vector<std::string> arguments_of(const sys::Procfs& procfs, std::int32_t pid) {
  auto words = procfs.cmdline(pid);
  if (!words) return {};
  std::vector<std::string> out;
  std::size_t left = kCmdlineCharsMax;
  for (std::string& word : *words) {
    const std::size_t blank = out.empty() ? 0 : 1;
    if (left <= blank) break;
    word.resize(std::min(word.size(), left - blank));
    left -= blank + word.size();
    out.push_back(printable(word));
  }
  return out;
}

bool is_multiprocessing(const std::vector<std::string>& arguments) {
  const auto code = std::find(arguments.begin(), arguments.end(), "-c");
  return code != arguments.end() && std::next(code) != arguments.end() &&
         std::next(code)->starts_with("from multiprocessing.");
}

std::vector<std::string> arguments_of_starter(const sys::Procfs& procfs, std::int32_t parent) {
  constexpr int kLaunchersMax = 8;
  for (int i = 0; i < kLaunchersMax && parent > 1; ++i) {
    auto arguments = arguments_of(procfs, parent);
    if (!arguments.empty() && !is_multiprocessing(arguments)) return arguments;
    const auto stat = procfs.stat(parent);
    parent = stat ? stat->parent_pid : 0;
  }
  return {};
}

}  // namespace

std::string JobProcess::cmdline() const {
  return fmt::format("{}", fmt::join(arguments, " "));
}

Result<JobProcess> describe_process(const sys::Procfs& procfs, std::int32_t pid) {
  TRY(const sys::ProcStat stat, procfs.stat(pid));
  JobProcess out;
  out.pid = pid;
  out.parent_pid = stat.parent_pid;
  out.start_ticks = stat.start_ticks;
  out.name = printable(stat.comm);
  out.owner = procfs.owner(pid);
  // Before the command: a process that still has one then had not ended when this was read.
  if (const auto environ = procfs.environ(pid); environ) out.facts = rank_facts(*environ);
  out.arguments = arguments_of(procfs, pid);
  if (is_multiprocessing(out.arguments))
    out.started_by = arguments_of_starter(procfs, stat.parent_pid);
  return out;
}

namespace {

bool is_loopback(std::string_view told) {
  return told.starts_with("127.") || told.starts_with("localhost:") || told.starts_with("::1:") ||
         told.starts_with("[::1]:");
}

}  // namespace

JobOwner job_owner(const JobProcess& process) {
  return {process.owner.user, is_loopback(process.facts.job) ? process.owner.network : 0};
}

bool is_local_job(const JobProcess& process) {
  return process.facts.job.empty() || is_loopback(process.facts.job);
}

std::string own_job_name(const JobProcess& process) {
  return fmt::format("{}/{}", process.name, process.pid);
}

std::vector<Job> find_jobs(const sys::Procfs& procfs) {
  const std::vector<std::int32_t> pids = procfs.pids();
  sys::TcpSampler connections;
  ProcessTable table(procfs, {.processes_max = pids.size(),
                              .connected = [&](auto members, auto networks, BootTime now) {
                                return connected(connections, members, networks, now);
                              }});
  add_processes(procfs, pids, table);
  static_cast<void>(table.settle({}));
  std::map<std::string, Job> jobs;
  for (const auto& [pid, process] : table.processes()) {
    const bool is_rank = process.place.role == Role::kRank;
    Job& job = jobs[is_rank ? process.place.job : table.declared_job(process.facts)];
    job.processes.push_back(process.facts);
    if (!is_rank) continue;
    job.world_size = std::max(job.world_size, process.place.world_size);
    job.rank_pids.emplace_back(process.place.rank, pid);
  }
  std::vector<Job> out;
  for (auto& [name, job] : jobs) {
    if (job.rank_pids.empty()) continue;
    job.name = name;
    std::sort(job.rank_pids.begin(), job.rank_pids.end());
    out.push_back(std::move(job));
  }
  return out;
}

std::size_t count_hidden_processes(const sys::Procfs& procfs) {
  const std::vector<std::int32_t> pids = procfs.pids();
  return static_cast<std::size_t>(std::count_if(pids.begin(), pids.end(), [&](std::int32_t pid) {
    const auto command = procfs.cmdline(pid);
    if (!command || command->empty()) return false;  // the kernel's own
    const auto environment = procfs.environ(pid);
    return !environment && environment.error().code == Code::kPermission;
  }));
}

ProcessForest::ProcessForest(const sys::Procfs& procfs) {
  for (const std::int32_t pid : procfs.pids()) {
    if (const auto stat = procfs.stat(pid); stat) children_.emplace(stat->parent_pid, pid);
  }
}

std::vector<std::int32_t> ProcessForest::trees(std::span<const std::int32_t> pids) const {
  std::set<std::int32_t> found(pids.begin(), pids.end());
  std::vector<std::int32_t> pending(pids.begin(), pids.end());
  while (!pending.empty()) {
    const std::int32_t next = pending.back();
    pending.pop_back();
    const auto [first, last] = children_.equal_range(next);
    for (auto child = first; child != last; ++child) {
      if (found.insert(child->second).second) pending.push_back(child->second);
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace kansoku::capture
