// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// Memory that one thread reads or writes with an instruction: `count` values of `bytes` bytes
/// each.
struct MemoryAccess {
  enum class Kind : std::uint8_t { kLoad, kStore, kAtomic };  // kAtomic: both at once
  Kind kind{Kind::kLoad};
  Space space{Space::kGeneric};
  std::uint32_t bytes{0};
  std::uint32_t count{1};
  std::uint32_t operand{0};  // the address, among the instruction's operands
  bool is_strong{false};     // volatile, relaxed, acquire, release and atomics: ordered by itself
  /// The access is to a tile, which a warp accesses as a whole: the values lie apart, and the
  /// operand is the begin of the tile (wmma) or that of a row which some lanes name for all
  /// (ldmatrix).
  bool is_tile{false};

  [[nodiscard]] bool is_load() const { return kind != Kind::kStore; }
  [[nodiscard]] bool is_store() const { return kind != Kind::kLoad; }
  friend bool operator==(const MemoryAccess&, const MemoryAccess&) = default;
};

/// Places that an instruction accesses: none, one, or the two of a copy (source first).
class MemoryAccesses {
 public:
  MemoryAccesses() = default;
  explicit MemoryAccesses(const MemoryAccess& one) : items_{one}, count_(1) {}
  MemoryAccesses(const MemoryAccess& one, const MemoryAccess& other)
      : items_{one, other}, count_(2) {}
  [[nodiscard]] const MemoryAccess* begin() const { return items_.data(); }
  [[nodiscard]] const MemoryAccess* end() const { return items_.data() + count_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }

 private:
  std::array<MemoryAccess, 2> items_{};
  std::size_t count_{0};
};

/// By the table of opcodes that touch memory: ld, ldu, st, atom, red, cp.async, ldmatrix, stmatrix,
/// wmma.load, wmma.store. Nothing for prefetches, for calls (whose callee is another function) and
/// for Op::kUnknown, of which nothing is known. Pure; any thread.
[[nodiscard]] MemoryAccesses memory_access(const Function& function,
                                           const Instruction& instruction);

/// The space that an instruction names first; kGeneric if none.
[[nodiscard]] Space space_of(const Instruction& instruction);

}  // namespace kansoku::gpu::ptx
