// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sys/procfs.h"
#include "trace/model.h"

namespace kansoku::capture {

/// Place of a process in a distributed job, as its environment tells it. Empty job: it tells none.
/// Empty job = it says nothing.
struct RankFacts {
  std::string job;  // "127.0.0.1:29511", "mpi-<id>", "slurm-<id>.<step>"
  std::int32_t rank{trace::kNoRank};
  std::int32_t local_rank{trace::kNoRank};
  std::int32_t world_size{trace::kNoRank};
};

/// Reads RANK / WORLD_SIZE / LOCAL_RANK / MASTER_ADDR / MASTER_PORT, then OMPI_*, then SLURM_*. The
/// values are untrusted: numbers out of 0 .. 1,048,575 are ignored, names cut to 128 characters of
/// which those that a shell or a terminal may obey are '_'.
/// Pure.
[[nodiscard]] RankFacts rank_facts(const std::map<std::string, std::string>& untrusted_environ);

/// A process of a job, as found in /proc.
struct JobProcess {
  std::int32_t pid{0}, parent_pid{0};
  std::uint64_t start_ticks{0};
  std::string name;  // comm, printable
  // Arguments of the command line, printable, 1,024 characters in all with one blank between any
  // two; may hold secrets.
  std::vector<std::string> arguments;
  // Arguments of the nearest ancestor with a command of its own, where the own ones are only those
  // of Python's multiprocessing, the same for all that it spawns; else empty.
  std::vector<std::string> started_by;
  RankFacts facts;
  sys::Procfs::Owner owner;

  /// `arguments` joined with blanks.
  [[nodiscard]] std::string cmdline() const;
};

/// Everything /proc tells of one process; kNotFound if it is gone. One that has ended and is not
/// waited for yet has a name, and neither arguments nor facts.
[[nodiscard]] Result<JobProcess> describe_process(const sys::Procfs& procfs, std::int32_t pid);

/// Whose a job of that name is: the user, and for loopback addresses the network namespace (else
/// 0), since two containers may both have their rank 0 at 127.0.0.1:29500.
using JobOwner = std::pair<std::uint32_t, std::uint64_t>;
[[nodiscard]] JobOwner job_owner(const JobProcess& process);

/// True if the name of its job means nothing on other hosts: none is told, or a loopback address.
[[nodiscard]] bool is_local_job(const JobProcess& process);

/// A process as a job of its own: its program and pid.
[[nodiscard]] std::string own_job_name(const JobProcess& process);

/// A job that runs on this host.
struct Job {
  std::string name;
  std::int32_t world_size{trace::kNoRank};
  std::vector<JobProcess>
      processes;  // by pid; ranks, their children and launchers that carry the environment
  std::vector<std::pair<std::int32_t, std::int32_t>> rank_pids;  // rank and pid, by rank
};

/// All jobs with at least one rank, by name, as their environment and the process groups in their
/// memory tell; ProcessTable says which processes those are, and how
/// jobs of one name are told apart. Scans /proc once; processes of others may be unreadable and are
/// left out.
[[nodiscard]] std::vector<Job> find_jobs(const sys::Procfs& procfs);
/// How many processes keep their environment from us, so that find_jobs() cannot tell of them.
[[nodiscard]] std::size_t count_hidden_processes(const sys::Procfs& procfs);

/// Parents and children among the processes of the host at one moment: reads all of /proc once.
class ProcessForest {
 public:
  explicit ProcessForest(const sys::Procfs& procfs);
  /// Some processes and all their descendants, ascending.
  [[nodiscard]] std::vector<std::int32_t> trees(std::span<const std::int32_t> pids) const;
  [[nodiscard]] std::vector<std::int32_t> tree(std::int32_t pid) const { return trees({&pid, 1}); }

 private:
  std::multimap<std::int32_t, std::int32_t> children_;
};

/// True for shells and wrappers that start ranks but are none ("bash", "sh", "env", "torchrun",
/// "mpirun", ...).
[[nodiscard]] bool is_wrapper(std::string_view comm);

}  // namespace kansoku::capture
