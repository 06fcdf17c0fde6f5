// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace kansoku::sys {

/// Registers by their DWARF numbers on x86-64 that an unwinder follows.
inline constexpr std::size_t kUnwindRegisters = 17;
inline constexpr std::size_t kRegisterRbp = 6, kRegisterRsp = 7, kRegisterReturn = 16;

/// How to come from one instruction of a function to its caller.
struct UnwindRow {
  /// The canonical frame address: that register plus the offset.
  std::size_t cfa_register{0};
  std::int64_t cfa_offset{0};
  enum class Rule : std::uint8_t { kSame, kUndefined, kSaved };
  struct Register {
    Rule rule{Rule::kSame};
    std::int64_t offset{0};  // kSaved: from the canonical frame address
  };
  std::array<Register, kUnwindRegisters> registers{};
};

/// Fills as much of `into` as there is at a virtual address of the file; returns how many bytes.
using ReadImage = std::function<std::size_t(std::uint64_t address, std::span<std::byte> into)>;

/// The row of the call frame information (.eh_frame, found by its search table .eh_frame_hdr at
/// `table_address`) for one address. Nothing: none there, or one of a form that compilers do not
/// write for functions (expressions, 64-bit lengths). The image is hostile: every read and every
/// loop is bounded. Pure.   Source: Linux Standard Base core, "Exception frames"; DWARF 5, 6.4.
[[nodiscard]] std::optional<UnwindRow> unwind_row(std::uint64_t table_address,
                                                  const ReadImage& read_untrusted,
                                                  std::uint64_t address);

}  // namespace kansoku::sys
