// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/internal/user_shares.h"
#include "capture/job.h"
#include "capture/observed.h"
#include "common/time.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// The observed processes of this host, and where each belongs: the one place that decides which
/// process is a rank, which one a worker, of whom, and how its job is called. Single-threaded.
class ProcessTable {
 public:
  struct Options {
    std::size_t processes_max{4096};
    bool is_shared{false};  // one user may have half of them at most
    /// By process, the index of the first that it talks to, itself included, as connected();
    /// `networks` are their network namespaces. Empty: nobody is known to talk to anybody.
    std::function<std::vector<std::size_t>(std::span<const std::int32_t> pids,
                                           std::span<const std::uint64_t> networks, BootTime now)>
        connected{};
  };
  /// Kind of activity that a process has been seen in. A process that works is nobody's worker; one
  /// that communicates without a rank in its environment is given one.
  enum class Work : std::uint8_t { kComputes, kCommunicates };

  ProcessTable(const sys::Procfs& procfs, const Options& options);

  /// Adds a process, or takes it anew after an exec; one that ended right after that keeps the rank
  /// and the command that it told before. Null: the table is full, which is counted.
  Observed* add(JobProcess facts, BootTime now);
  void remove(std::int32_t pid);
  void note_work(std::int32_t pid, Work work);
  /// Its place in a process group, as a call or the group's object told it: it communicates. False:
  /// it is not in the table.
  bool note_seat(const GroupSeat& seat);
  /// True if a process was added, or seen working for the first time, since the last settle().
  [[nodiscard]] bool has_news() const { return has_news_; }

  /// Decides the places of all, from the facts known now:
  ///   * A process works for the process above it that is the same rank of the same job, or the
  ///     same command without any, and that one for the next, up to the topmost or the first that
  ///     has been seen working itself. The worker of a rank that worked does not become the rank
  ///     when that one ends.
  ///   * If several claim one rank, the oldest of those that work is it. Its parent is its
  ///     launcher, others are programs of their own.
  ///   * A rank is what its greatest process group says, and the processes that talk to each other
  ///     in groups of one size are a job. What the environment says counts where no group was seen,
  ///     or a smaller one alone, and names the job where it agrees. Processes whose groups
  ///     contradict each other have no rank, and a problem says so.
  ///   * Siblings that communicate, tell no rank, have one command but for numbers, one user and an
  ///     observed program as parent are ranks in the order of their start, as torch.multiprocessing
  ///     starts them; once all of them communicate, or no more have begun to for half a minute.
  ///     Those that come later get the numbers that are free.
  ///   * Who has ranks below it, is none and was not seen working is their launcher.
  ///   * A job has the name that its ranks tell. If others (job_owner) have it already, or began
  ///     first, then with "#2" behind it, and so on. A name stays while its job has processes.
  /// Returns the processes whose place is another one now, ascending.
  std::vector<std::int32_t> settle(BootTime now);

  [[nodiscard]] Processes& processes() { return processes_; }
  [[nodiscard]] const Processes& processes() const { return processes_; }
  [[nodiscard]] bool contains(std::int32_t pid) const { return processes_.contains(pid); }
  /// The name of the job that the environment of a process tells, as of the last settle(): also of
  /// one that is no rank of it. "" if it tells none.
  [[nodiscard]] std::string declared_job(const JobProcess& process) const;
  /// Times that there was no room.
  [[nodiscard]] std::uint64_t over_limit() const { return over_limit_; }
  [[nodiscard]] std::size_t user_max() const { return shares_.user_max(); }
  /// Processes that contradict each other, in words; each said once.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  using DeclaredJob = std::pair<std::string, JobOwner>;  // a name and whose it is
  struct Guess {
    std::string job{};
    std::int32_t rank{0}, world_size{0};
  };
  struct Clues {
    std::vector<std::int32_t> ancestors{};  // nearest first, as they were when it was added
    bool works{false}, communicates{false};
    bool has_owner_worked{false};  // of a worker
    std::optional<Guess> guess{};
    std::optional<GroupSeat> seat{};  // in its greatest group
    bool is_contradicted{false};
  };
  using Siblings = std::tuple<std::int32_t, JobOwner, std::string>;  // parent, user, command
  struct Group {
    std::vector<const JobProcess*> communicating{};
    std::size_t count{0};  // with those that do not
  };
  struct Growth {
    std::size_t size{0};
    BootTime since{};
  };
  [[nodiscard]] std::vector<std::int32_t> ancestors_of(const JobProcess& process) const;
  [[nodiscard]] const Observed* nearest_above(const Observed& process) const;
  [[nodiscard]] std::map<std::int32_t, std::int32_t> owners() const;
  [[nodiscard]] bool may_be_spawned(const JobProcess& process) const;
  void seat_ranks(BootTime now);
  void seat(const std::vector<const JobProcess*>& members);
  [[nodiscard]] bool is_told(const JobProcess& process) const;
  [[nodiscard]] std::optional<std::pair<std::int32_t, std::int32_t>> misfits(
      const std::vector<const JobProcess*>& members) const;
  [[nodiscard]] std::string fresh_name(const std::string& told) const;
  [[nodiscard]] std::string name_by_ancestor(const std::vector<const JobProcess*>& members) const;
  void guess_ranks(BootTime now);
  void number(std::vector<const JobProcess*> ranks);
  [[nodiscard]] Place claim_of(std::int32_t pid, std::int32_t owner) const;
  void leave_one_a_rank(std::map<std::int32_t, Place>& places) const;
  void find_starters(std::map<std::int32_t, Place>& places) const;
  void name_jobs(const std::map<std::int32_t, Place>& places);

  const sys::Procfs& procfs_;
  Options options_;
  Processes processes_;
  std::map<std::int32_t, Clues> clues_;
  std::map<DeclaredJob, std::string> names_;
  std::map<Siblings, Growth> growing_;  // groups whose ranks are not guessed yet
  UserShares shares_;
  std::vector<std::string> problems_;
  std::uint64_t over_limit_{0};
  bool has_news_{false};
};

}  // namespace kansoku::capture
