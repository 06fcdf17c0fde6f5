// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "sys/procfs.h"

namespace kansoku::capture {

/// The kernels of host stubs, by the symbols of the files that a process has mapped, opened through
/// its root. A name is given only for a symbol that begins at the very address, where there is one
/// name. Files remembered are bounded. Single-threaded; procfs is borrowed.
class StubNames {
 public:
  static constexpr std::size_t kFilesMax = 64;

  explicit StubNames(const sys::Procfs& procfs);
  ~StubNames();
  StubNames(const StubNames&) = delete;
  StubNames& operator=(const StubNames&) = delete;

  /// The mangled name of the kernel whose stub lies at `address`. Reads the maps each time: another
  /// library may lie there by now.
  [[nodiscard]] std::optional<std::string> name_at(std::int32_t pid, std::uint64_t address);

 private:
  struct File;
  using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // device, inode
  const sys::Procfs& procfs_;
  std::map<FileKey, std::unique_ptr<File>> files_;
};

}  // namespace kansoku::capture
