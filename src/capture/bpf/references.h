// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "sys/elf.h"

namespace kansoku::capture::bpf {

/// The address (virtual, in the file) that a function takes first: of a table that it looks things
/// up in, or of a text that it returns. Nothing where its first instructions take none, or branch
/// before. Deterministic; any thread that owns `file`.
[[nodiscard]] std::optional<std::uint64_t> first_address_taken(sys::ElfFile& file,
                                                               const sys::Symbol& function);

}  // namespace kansoku::capture::bpf
