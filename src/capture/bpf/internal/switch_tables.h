// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "capture/bpf/internal/unwind_table.h"
#include "sys/elf.h"

namespace kansoku::capture::bpf {

/// Places where tables of switches may lie, by the addresses that some code names: more than there
/// are, never less.
struct SwitchTables {
  std::set<std::uint64_t> near;  // 4 bytes an entry, which count from the table's begin
  std::set<std::uint64_t> far;   // 8 bytes an entry, addresses
};

/// Those of the code in `range`. Nothing if a jump may go by a table of another kind: of pointers
/// that are relocated, or of distances between labels.
[[nodiscard]] std::optional<SwitchTables> find_switch_tables(const sys::ElfFile& file,
                                                             const CodeRange& range);

}  // namespace kansoku::capture::bpf
