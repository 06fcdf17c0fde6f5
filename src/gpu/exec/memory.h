// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/result.h"

namespace kansoku::gpu::exec {

/// Global memory of a software device: one reserved range of this process's addresses, so that a
/// device pointer is a host address. Allocations are zero-filled at first, separated by unmapped
/// gaps of at least kGuardBytes, and never reuse an address before the range is used up: an access
/// after the end or after freeing is told apart from a good one. Not shared between threads without
/// a lock of the owner's.
class Memory {
 public:
  static constexpr std::uint64_t kAlign = 256;  // what cuMemAlloc promises
  static constexpr std::uint64_t kGuardBytes = 4096;

  struct Range {
    std::uint64_t begin{0}, end{0};
  };

  /// A device with `capacity_bytes`; kUnavailable if the addresses cannot be reserved.
  [[nodiscard]] static Result<Memory> create(std::uint64_t capacity_bytes);
  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
  ~Memory();

  /// kLimit if the device is full; `bytes` > 0.
  [[nodiscard]] Result<std::uint64_t> allocate(std::uint64_t bytes);
  /// kNotFound if no allocation begins there.
  [[nodiscard]] Result<void> free(std::uint64_t address);
  /// The allocation that holds the address, or nothing ({0, 0}).
  [[nodiscard]] Range find(std::uint64_t address) const;
  /// All allocations, by address.
  [[nodiscard]] std::vector<Range> ranges() const;

  [[nodiscard]] std::uint64_t capacity_bytes() const;
  [[nodiscard]] std::uint64_t used_bytes() const;

 private:
  struct State;
  explicit Memory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kansoku::gpu::exec
