// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "common/stat.h"
#include "common/time.h"
#include "sys/procfs.h"
#include "trace/writer.h"

namespace kansoku::capture {

STAT(capture_unnamed_frames, kNotice, kCapture,
     "native frames without a symbol: stripped code, or code made at run time");

/// Names native addresses of observed processes: mapping, then the symbol table of its file, opened
/// through the target's root. Files, processes and addresses remembered are bounded; a file over
/// the limit leaves its frames with the library's name alone. Single-threaded; procfs and writer
/// are borrowed.
class NativeSymbols {
 public:
  static constexpr std::size_t kFilesMax = 256;
  static constexpr std::size_t kAddressesMax = 65'536;  // a process

  NativeSymbols(const sys::Procfs& procfs, trace::Writer& writer);
  ~NativeSymbols();
  NativeSymbols(const NativeSymbols&) = delete;
  NativeSymbols& operator=(const NativeSymbols&) = delete;

  /// The stack of `addresses` (innermost first, the others return addresses), outermost first.
  /// Reads the maps of a process at most once a second.
  [[nodiscard]] trace::StackHandle stack(std::int32_t pid, std::span<const std::uint64_t> addresses,
                                         BootTime now);
  /// The functions of a call's stack for people, innermost first: "f < g < main", at most
  /// `frames_max` of them; addresses without a symbol are left out.
  [[nodiscard]] std::string text(std::int32_t pid, std::span<const std::uint64_t> addresses,
                                 BootTime now, std::size_t frames_max);
  /// After an exec or exit: nothing known of the process holds any more.
  void forget(std::int32_t pid) { processes_.erase(pid); }
  [[nodiscard]] std::uint64_t unnamed() const { return unnamed_; }

 private:
  struct File;
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // device, inode
  struct Process {
    std::vector<sys::Mapping> code;  // executable, by address
    BootTime read_at{};
    bool is_read{false};
    std::unordered_map<std::uint64_t, trace::FrameHandle> known;
  };
  trace::FrameHandle frame(Process& process, std::int32_t pid, std::uint64_t address, BootTime now);
  const sys::Mapping* mapping_of(Process& process, std::int32_t pid, std::uint64_t address,
                                 BootTime now);
  const std::string* function_at(Process& process, std::int32_t pid, std::uint64_t address,
                                 BootTime now);
  const File* file_of(std::int32_t pid, const sys::Mapping& mapping);

  const sys::Procfs& procfs_;
  trace::Writer& writer_;
  std::map<std::int32_t, Process> processes_;
  std::map<FileKey, std::unique_ptr<File>> files_;
  std::vector<trace::FrameHandle> frames_;  // scratch
  std::uint64_t unnamed_{0};
};

}  // namespace kansoku::capture
