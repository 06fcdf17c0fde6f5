// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "common/result.h"
#include "common/time.h"
#include "sys/elf.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// The file's name as it was mapped, whatever happened to the file since.
[[nodiscard]] std::string library_name(std::string_view mapped_path);

/// Opens files that processes have mapped: what it keeps open stays what was mapped, whatever
/// becomes of the name and of the process. A file system that need not answer (in user space, of
/// the network) is asked on a thread of its own, and never holds the caller up. Single-threaded.
class MappedFiles {
 public:
  static constexpr std::size_t kWaitingMax = 8;  // threads that wait for such file systems
  static constexpr Nanos kPatience = std::chrono::milliseconds{100};

  /// `limits`: of reading libraries.
  MappedFiles(const sys::Procfs& procfs, const sys::ElfFile::Limits& limits)
      : procfs_(procfs), limits_(limits) {}

  /// kNotFound if file or process are gone already; kUnsupported for any other than a regular file;
  /// kTimeout: no answer so far, ask again later; it is also the answer while too many wait.
  [[nodiscard]] Result<sys::Fd> open(std::int32_t pid, const sys::Mapping& mapping);
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Answer;
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::int32_t>;
  [[nodiscard]] Result<sys::Fd> ask(std::int32_t pid, const sys::Mapping& mapping);
  [[nodiscard]] Result<sys::Fd> take(std::map<Key, std::shared_ptr<Answer>>::iterator waiting,
                                     Nanos patience);

  const sys::Procfs& procfs_;
  sys::ElfFile::Limits limits_;
  std::map<Key, std::shared_ptr<Answer>> waiting_;  // by device, inode and process
};

}  // namespace kansoku::capture
