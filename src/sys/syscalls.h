// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::sys {

/// The system call that a thread sleeps in.
struct ThreadWait {
  std::int64_t number{-1};
  std::uint64_t first{0};  // its first argument: a file descriptor, an address, ...
  friend bool operator==(const ThreadWait&, const ThreadWait&) = default;
};
/// `untrusted`: the text of /proc/PID/task/TID/syscall. Nothing for a thread that runs or waits
/// outside of a system call.
[[nodiscard]] std::optional<ThreadWait> parse_thread_wait(std::string_view untrusted);
/// Read now; needs the rights to trace the process. Nothing if it cannot be told.
[[nodiscard]] std::optional<ThreadWait> thread_wait(const std::string& proc_root, std::int32_t pid,
                                                    std::int32_t tid);

/// "futex", "read", ... of the calls that threads wait in; "system call N" of others. A select of
/// no files is a pause, "nanosleep": so Python sleeps before 3.11. Numbers are those of the machine
/// that this runs on.
[[nodiscard]] std::string syscall_name(const ThreadWait& wait);
/// Its first argument is a file descriptor.
[[nodiscard]] bool takes_descriptor(std::int64_t number);
/// Its first argument is the address of a lock.
[[nodiscard]] bool takes_lock(std::int64_t number);

}  // namespace kansoku::sys
