// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "sys/procfs.h"

namespace kansoku::sys {

struct NativeFrame {
  std::uint64_t address{0};  // of the instruction, or that the call returns to
  std::string function;      // as the file has it, mangled; "" = no symbol
  std::string file;          // that maps it; "" = code made at run time
  /// Found by search, not by call frame information: a return address behind a call, perhaps one of
  /// an earlier call. All frames outwards of such a one are marked, too.
  bool is_guessed{false};
};

/// Native stacks of threads that sleep in a system call, read from outside: nothing is stopped, no
/// debugger attached. A thread that wakes meanwhile is read anew, a few times. Files and their
/// symbols are remembered. A hostile process only gets bounded reads. x86-64 alone.
/// Single-threaded; borrows procfs.
class NativeStacks {
 public:
  static constexpr std::size_t kFramesMax = 128;

  explicit NativeStacks(const Procfs& procfs);
  ~NativeStacks();
  NativeStacks(const NativeStacks&) = delete;
  NativeStacks& operator=(const NativeStacks&) = delete;

  /// Return addresses that a thread of the process was seen with, innermost first, by name.
  [[nodiscard]] Result<std::vector<NativeFrame>> named(std::int32_t pid,
                                                       std::span<const std::uint64_t> addresses);

  /// Innermost first. kUnavailable: the thread runs; kNotFound: it is gone; kPermission.
  [[nodiscard]] Result<std::vector<NativeFrame>> of(std::int32_t pid, std::int32_t tid);

 private:
  struct File;
  struct Walk;
  File* file_of(std::int32_t pid, const Mapping& mapping);

  const Procfs& procfs_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

}  // namespace kansoku::sys
