// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stats/intervals.h"
#include "trace/model.h"

namespace kansoku::diagnose {

using stats::Interval;

/// Threads that ran on each processor, by the recorded switches.
class ProcessorUse {
 public:
  explicit ProcessorUse(const trace::Trace& trace);

  /// Adds the nanoseconds of each thread (0: the processor was idle) on `cpu` within `window`; of
  /// the processors of the host that `tid` is of. Switches between threads that are not observed
  /// are not recorded: the time between two that do not fit each other is halved between the thread
  /// that came and the one that left.
  void add_users(std::int32_t tid, std::uint32_t cpu, Interval window,
                 std::map<std::int32_t, std::int64_t>& ns) const;

 private:
  struct Change {
    std::int64_t time_ns{0};
    std::int32_t prev_tid{0}, next_tid{0};
  };
  using Processor = std::pair<std::size_t, std::uint32_t>;  // host and number there
  std::map<Processor, std::vector<Change>> changes_;        // in order
};

/// The processes that threads belong to, and their names.
class ThreadNames {
 public:
  explicit ThreadNames(const trace::Trace& trace);
  [[nodiscard]] bool is_known(std::int32_t tid) const { return find(tid) != nullptr; }
  /// The process of a thread; the thread itself if the trace does not tell.
  [[nodiscard]] std::int32_t process_of(std::int32_t tid) const;
  /// "" if the trace does not tell. Borrowed from the trace.
  [[nodiscard]] std::string_view name_of(std::int32_t tid) const;
  /// "bash (pid 4121)": its name and the number of its process on its host, for a sentence.
  [[nodiscard]] std::string shown(std::int32_t tid) const;
  /// The job that its process says it is of; "" if it says none. Borrowed from the trace.
  [[nodiscard]] std::string_view job_of(std::int32_t tid) const;

 private:
  struct Known {
    std::int32_t pid{0};
    std::string_view name, job;
  };
  [[nodiscard]] const Known* find(std::int32_t tid) const;
  std::unordered_map<std::int32_t, Known> threads_;
};

}  // namespace kansoku::diagnose
