// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "capture/python/offsets.h"
#include "common/bytes.h"

namespace kansoku::capture::python {

/// From this byte offset of the code on, instructions belong to `line` (0 = to none).
struct LineRun {
  std::uint32_t begin{0};
  std::uint32_t line{0};
};

/// Decodes the line table of a code object into runs of ascending `begin`. A torn or malformed
/// table gives the runs up to the damage. At most one run per two bytes of the table.
/// Source: Objects/lnotab_notes.txt (3.8, 3.9, 3.10), Objects/locations.md (3.11) of CPython.
[[nodiscard]] std::vector<LineRun> decode_line_table(LineTableKind kind, ByteSpan untrusted,
                                                     std::uint32_t first_line);

/// The line of the instruction at byte `offset`; 0 if no run says.
[[nodiscard]] std::uint32_t line_at(const std::vector<LineRun>& runs, std::uint32_t offset);

}  // namespace kansoku::capture::python
