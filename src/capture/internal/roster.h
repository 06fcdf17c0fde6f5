// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "capture/source.h"
#include "common/time.h"
#include "trace/writer.h"

namespace kansoku::capture {

/// The observed processes and what is known of them. Writes process tracks. Single-threaded.
class Roster {
 public:
  Roster(trace::Writer& writer, const sys::Procfs& procfs) : writer_(writer), procfs_(procfs) {}

  /// Adds a process, or reads it again after an exec. False if it is gone or the roster is full.
  bool add(std::int32_t pid, BootTime now);
  void remove(std::int32_t pid) { processes_.erase(pid); }
  /// Gives ranks to processes that take part in collectives without saying their rank in their
  /// environment, by order of start among siblings (as torch.multiprocessing.spawn starts them).
  void guess_ranks(const std::set<std::int32_t>& collective_pids);

  [[nodiscard]] std::map<std::int32_t, Observed>& processes() { return processes_; }
  [[nodiscard]] const std::set<std::int32_t>& ranks_seen() const { return ranks_seen_; }
  [[nodiscard]] std::uint64_t over_limit() const { return over_limit_; }
  /// True if the ranks were guessed from the order of start.
  [[nodiscard]] bool has_guessed() const { return !guessed_.empty(); }

 private:
  [[nodiscard]] std::string role_of(const JobProcess& process) const;
  void write_track(Observed& process);

  trace::Writer& writer_;
  const sys::Procfs& procfs_;
  std::map<std::int32_t, Observed> processes_;
  std::set<std::int32_t> ranks_seen_;
  std::set<std::int32_t> guessed_;
  std::uint64_t over_limit_{0};
};

}  // namespace kansoku::capture
