// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/python/offsets.h"
#include "capture/python/sampler.h"
#include "common/result.h"
#include "sys/elf.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture::python {

struct Version {
  std::int32_t minor{0};
  std::int32_t micro{-1};  // -1 = unknown
  std::string suffix;      // "+", "rc1", ...
};
/// "3.11.2", or "3.8" if the micro version is unknown.
[[nodiscard]] std::string version_text(const Version& version);
/// 0x030b02f0 -> 3.11.2; nothing unless it is a Python 3.
[[nodiscard]] std::optional<Version> version_from_hex(std::uint64_t untrusted_hex);
/// The minor version in "libpython3.8.so.1.0", "libpython3.7m.so", "python3.10"; nothing else.
[[nodiscard]] std::optional<std::int32_t> minor_from_name(std::string_view file_name);
/// The version string ("3.8.18") among the NUL-terminated strings of `untrusted`, an interpreter's
/// read-only data. `minor`: accept that one only.
[[nodiscard]] std::optional<Version> version_from_strings(std::string_view untrusted,
                                                          std::optional<std::int32_t> minor);

/// An interpreter in a process.
struct Interpreter {
  std::string path;          // of the ELF file, as the target sees it
  std::uint64_t runtime{0};  // address of _PyRuntime in the process
  std::uint64_t runtime_bytes{0};
  Version version;
};

/// Finds the interpreter of `pid`: libpython3.* first, else the executable. kNotFound: none;
/// kUnsupported: a Python of which it cannot tell the version.
[[nodiscard]] Result<Interpreter> find_interpreter(std::int32_t pid, const sys::Procfs& procfs);

/// The layout of that interpreter: a static table, or the process's own table of offsets.
[[nodiscard]] Result<Layout> layout_of(const Interpreter& interpreter, RemoteMemory& memory);

}  // namespace kansoku::capture::python
