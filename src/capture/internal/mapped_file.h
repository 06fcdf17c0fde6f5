// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "sys/fd.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// The file's name as it was mapped, whatever happened to the file since.
[[nodiscard]] std::string library_name(std::string_view mapped_path);

/// Opens the file that a process has mapped: what it keeps open stays what was mapped, whatever
/// becomes of the name and of the process. kNotFound if either is gone already; kUnsupported for
/// what is no regular file.
[[nodiscard]] Result<sys::Fd> open_mapped(const sys::Procfs& procfs, std::int32_t pid,
                                          const sys::Mapping& mapping);

}  // namespace kansoku::capture
