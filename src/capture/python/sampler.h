// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "sys/procfs.h"
#include "trace/model.h"

namespace kansoku::capture::python {

STAT(python_torn_reads, kNotice, kCapture,
     "a stack changed while it was read, twice in a row; that sample was dropped");
STAT(python_stacks_truncated, kNotice, kCapture,
     "stacks deeper than the limit; their outer frames are missing");
STAT(python_unreadable_processes, kDataLoss, kCapture,
     "Python processes whose version or layout is unknown; native data was still recorded");

/// One frame of a Python stack. The views live until the next call of sample().
struct PyFrame {
  std::string_view function;  // qualified name from 3.11 on, plain name before
  std::string_view file;
  std::uint32_t line{0};       // 0 = unknown
  std::uint64_t cache_key{0};  // equal keys within one Process mean an equal (function, file, line)
};

/// PyWait::on of a thread that waits for the right to run Python.
inline constexpr std::string_view kInterpreterLock = "interpreter lock";

/// Wait that a thread sleeps in.
struct PyWait {
  std::string call;  // "futex", "read", ...; empty: it does not sleep, or it cannot be told
  std::string on;    // "interpreter lock", "pipe:[17]", "/dev/sda"; empty: not known
};

/// One thread's stack at one instant.
struct PyStack {
  std::int32_t tid{0};  // 0 if it could not be told (before 3.11, thread without a match)
  trace::SampleState state{trace::SampleState::kUnknown};  // from /proc/PID/task/TID/stat
  bool holds_gil{false};
  std::optional<std::uint64_t> minor_faults;  // page faults since the thread began, likewise
  PyWait wait;                                // of the main thread only
  std::vector<PyFrame> frames;                // outermost first
};

/// Memory of a process, so that tests can supply images. Implementations never block and never
/// write.
class RemoteMemory {
 public:
  struct Range {
    std::uint64_t address{0};
    void* into{nullptr};
    std::size_t bytes{0};
  };
  RemoteMemory() = default;
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;
  virtual ~RemoteMemory() = default;
  /// Reads all ranges or returns false; a range may be torn by the running target.
  [[nodiscard]] virtual bool read(const std::vector<Range>& ranges) = 0;
};

/// Reads the Python stacks of one process from outside, without stopping it (process_vm_readv, as
/// many ranges a call as the structure allows; code objects cached). CPython 3.8 to 3.14: version
/// tables up to 3.12, _Py_DebugOffsets from 3.13. A hostile target only gets bounded reads: depth,
/// threads, interpreters, string lengths and cache size have limits. Not shared between threads.
/// Never blocks on the target.
class Process {
 public:
  struct Options {
    std::uint32_t depth_max{256};
    std::uint32_t threads_max{256};
    std::uint32_t code_cache_max{65536};
    bool batch_reads{true};  // false: one call per range, to measure the saving of batching
  };

  /// Finds the interpreter in `pid` (libpython3.* or the executable, through the target's own mount
  /// namespace). kNotFound: no Python in this process (yet). kUnsupported: a Python it does not
  /// know, named in the error. kUnavailable: the memory there does not look like stacks now: for
  /// moments of its start and of a fork, and for good in a build with a layout of its own.
  /// kPermission: may not read its memory.
  [[nodiscard]] static Result<std::unique_ptr<Process>> attach(std::int32_t pid,
                                                               const sys::Procfs& procfs,
                                                               Options options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// "3.11.2"; never empty.
  [[nodiscard]] const std::string& version() const;

  /// Stacks of all threads that run Python now, into `out` (its capacity is reused). kNotFound once
  /// the process is gone.
  [[nodiscard]] Result<void> sample(std::vector<PyStack>& out);

  struct Counters {
    std::uint64_t samples{0}, torn{0}, retried{0}, truncated{0}, read_calls{0}, read_ranges{0};
  };
  [[nodiscard]] const Counters& counters() const;

 private:
  struct Impl;
  explicit Process(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::capture::python
