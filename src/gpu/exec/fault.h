// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpu/exec/fault_kind.h"

namespace kansoku::gpu::exec {

/// Fault that ended a kernel before its end, or a hazard that was found on the way.
struct Fault {
  FaultKind kind{FaultKind::kNone};
  std::string kernel;
  std::uint64_t launch{0};  // LaunchOptions::number
  std::uint32_t line{0};    // of the PTX text
  std::array<std::uint32_t, 3> block{}, thread{};
  std::uint64_t address{0};  // of memory faults; of shared memory: an offset
  std::uint32_t bytes{0};
  bool is_store{false};
  // For a race: the access before, within the same block.
  std::uint32_t other_line{0};
  std::array<std::uint32_t, 3> other_thread{};
  bool is_other_store{false};

  /// "out-of-bounds store of 4 bytes at 0x...: kernel k, ptx line 12, block (0, 0, 0), thread ...".
  [[nodiscard]] std::string text() const;
};
/// "out-of-bounds"; any thread.
[[nodiscard]] std::string_view fault_name(FaultKind kind);

}  // namespace kansoku::gpu::exec
