// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/python/sampler.h"
#include "sys/fd.h"
#include "trace/model.h"

namespace kansoku::capture::python {

/// A thread as /proc/PID/task/TID/stat has it.
struct TaskReading {
  trace::SampleState state{trace::SampleState::kUnknown};
  std::optional<std::uint64_t> minor_faults{};  // since it began
};

/// Readings of a process's threads from /proc/PID/task/TID/stat, one open file a thread (at most
/// 64; further threads are opened each time).
class TaskStates {
 public:
  TaskStates(const std::string& proc_root, std::int32_t pid);

  /// Nothing known if the thread is gone.
  [[nodiscard]] TaskReading read(std::int32_t tid);
  /// True if the process has such a thread now.
  [[nodiscard]] bool exists(std::int32_t tid) const;
  /// Closes the files of threads that were not asked for since the last call.
  void forget_unused();

 private:
  struct Task {
    std::int32_t tid{0};
    sys::Fd stat;
    bool used{false};
  };
  [[nodiscard]] std::string path_of(std::int32_t tid, std::string_view file) const;

  const std::string folder_;
  std::vector<Task> tasks_;
};

/// "12 (a name) R 1 12 12 0 -1 4194560 531 ..." -> kRunning, 531 faults. `untrusted`: the start of
/// a stat file, of any length.
[[nodiscard]] TaskReading parse_task(std::string_view untrusted);

/// Finds the thread ids of this host for CPython's ids of its threads.
class ThreadIds {
 public:
  ThreadIds(std::int32_t pid, const std::string& proc_root, RemoteMemory& memory,
            const TaskStates& tasks);

  /// From 3.11: CPython's native id, which counts in the target's own pid namespace. 0 if unknown.
  [[nodiscard]] std::int32_t from_native(std::uint64_t untrusted_native_id);
  /// Before: `thread_id` is a pthread_t, near which glibc keeps the id. Believed only if the same
  /// place gives the pid for the main thread and the process has such a thread.
  [[nodiscard]] std::int32_t from_pthread(std::uint64_t untrusted_thread_id, bool is_main);

 private:
  [[nodiscard]] std::int32_t lookup(std::int64_t inner);
  void refresh();
  [[nodiscard]] std::int32_t glibc_tid(std::uint64_t thread_id);

  const std::int32_t pid_;
  const std::string folder_;
  RemoteMemory& memory_;
  const TaskStates& tasks_;
  bool is_nested_{false};                          // the target sees other numbers than we do
  std::int32_t inner_pid_{0};                      // the pid as the target sees it
  std::map<std::int64_t, std::int32_t> outer_of_;  // only if nested
  std::map<std::uint64_t, std::int32_t> known_;    // by pthread_t
  std::uint32_t refreshes_left_{64};
  bool glibc_checked_{false};
};

}  // namespace kansoku::capture::python
