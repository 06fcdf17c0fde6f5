// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ptx/cfg.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// Registers that an instruction reads and writes, guard and parts of vectors included, in operand
/// order; a register may stand twice. An Op::kUnknown reads all its registers and may write all:
/// they stand in both lists, and `is_exact` is false.
struct Access {
  std::vector<std::uint32_t> reads, writes;
  bool is_exact{true};
};
[[nodiscard]] Access registers_of(const Function& function, const Instruction& instruction);

/// One bit a register.
class RegisterSet {
 public:
  explicit RegisterSet(std::size_t count = 0) : words_((count + 63) / 64) {}
  void insert(std::uint32_t index) { words_[index / 64] |= bit(index); }
  void erase(std::uint32_t index) { words_[index / 64] &= ~bit(index); }
  [[nodiscard]] bool contains(std::uint32_t index) const {
    return (words_[index / 64] & bit(index)) != 0;
  }
  /// True if this grew.
  bool merge(const RegisterSet& other);
  [[nodiscard]] std::vector<std::uint32_t> members() const;
  friend bool operator==(const RegisterSet&, const RegisterSet&) = default;

 private:
  static std::uint64_t bit(std::uint32_t index) { return std::uint64_t{1} << (index % 64); }
  std::vector<std::uint64_t> words_;
};

/// Registers whose value may still be read: at the begin and at the end of each block. A guarded
/// write does not end a life.
struct Liveness {
  std::vector<RegisterSet> in, out;  // by block
};
[[nodiscard]] Liveness compute_liveness(const Function& function, const Cfg& cfg);

}  // namespace kansoku::gpu::ptx
