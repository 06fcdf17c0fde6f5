// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::sys {

/// Resources that a process has used so far, all threads together but where asked for one.
struct ProcessCounters {
  char state{'?'};                         // of its main thread: R, S, D, T, Z, ...
  std::uint64_t user_ns{0}, system_ns{0};  // of processor time, in steps of a clock tick (10 ms)
  std::uint64_t minor_faults{0}, major_faults{0};
  std::uint32_t threads{0};
  std::uint64_t resident_bytes{0};  // now; the kernel may be off by some 256 KiB a processor
  /// Bytes from and to storage; nothing without the right to trace the process.
  std::optional<std::uint64_t> read_bytes, written_bytes;
  /// Nanoseconds that the main thread ran and waited for a processor; only on request. For hosts
  /// where scheduler events cannot be had.
  std::optional<std::uint64_t> main_run_ns, main_wait_ns;
};

/// `read_bytes` and `write_bytes` of the text of an io file.
struct StorageBytes {
  std::optional<std::uint64_t> read, written;
};
[[nodiscard]] StorageBytes parse_io(std::string_view untrusted);

/// Reads one process again and again: one small read a file (stat, io), which stay open. They are
/// bound to the process, so a later one with the same pid is never taken for it. Not shared between
/// threads.
class ProcessSampler {
 public:
  struct Options {
    std::string proc_root{"/proc"};
    bool main_schedule{false};     // reads schedstat as well
    bool reads_storage{true};      // and io
    bool main_thread_only{false};  // times and faults are of that thread
  };
  /// kNotFound if there is no such process.
  [[nodiscard]] static Result<ProcessSampler> open(std::int32_t pid, const Options& options);
  [[nodiscard]] static Result<ProcessSampler> open(std::int32_t pid);
  ProcessSampler(ProcessSampler&&) noexcept;
  ProcessSampler& operator=(ProcessSampler&&) noexcept;
  ~ProcessSampler();

  /// kNotFound once the process has ended and was reaped; until then a dead one has state 'Z'.
  [[nodiscard]] Result<ProcessCounters> sample() const;
  /// Clock ticks since boot; with the pid it names the process for ever.
  [[nodiscard]] std::uint64_t start_ticks() const;

 private:
  struct Files;
  explicit ProcessSampler(std::unique_ptr<Files> files);
  std::unique_ptr<Files> files_;
};

}  // namespace kansoku::sys
