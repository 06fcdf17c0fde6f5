// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "sys/elf.h"

namespace kansoku::capture::bpf {

/// The bytes from `function` to the next function, by the sorted table of the section
/// .eh_frame_hdr, which also has those without a symbol. Nothing if no function begins there, or
/// the table is not of the form that linkers write. Source: Linux Standard Base, Core, 10.6.2.
[[nodiscard]] std::optional<std::uint64_t> bytes_to_next_function(const sys::ElfFile& file,
                                                                  std::uint64_t function);

}  // namespace kansoku::capture::bpf
