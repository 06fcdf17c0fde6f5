// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/result.h"
#include "gpu/exec/address_range.h"

namespace kansoku::gpu::exec {

/// Memory of a software device, in this process's addresses, so that a device pointer is a host
/// address. Allocations lie in one range. They are zero-filled at first, separated by unmapped gaps
/// of at least kGuardBytes, and never reuse an address before the range is used up: an access after
/// the end or after freeing differs from a good one. Beside them: host memory that kernels may
/// access, and addresses that are reserved first and mapped later, anywhere and of any size. Any
/// thread.
class Memory {
 private:
  struct State;

 public:
  static constexpr std::uint64_t kAlign = 256;  // cuMemAlloc's promise
  static constexpr std::uint64_t kGuardBytes = 4096;
  static constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;  // of reserve and map

  using Range = AddressRange;
  /// Ranges by address. Shared, so that a launch takes them as they are without a copy.
  using Ranges = std::shared_ptr<const std::vector<Range>>;
  enum class Kind : std::uint8_t {
    kDevice,  // counts against the capacity
    kHost,    // of this process, allocated here; does not count
  };

  /// While one lives, memory that is freed, unmapped or made inaccessible stays in place, for
  /// readers that looked it up before. Must not outlive the memory. Any thread.
  class Hold {
   public:
    explicit Hold(const Memory& memory);
    Hold(Hold&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold();

   private:
    State* state_;
  };

  /// A device with `capacity_bytes`; kUnavailable if the addresses cannot be reserved. `base`:
  /// where the allocations begin, a multiple of kGranule that must be free; 0: anywhere.
  [[nodiscard]] static Result<Memory> create(std::uint64_t capacity_bytes, std::uint64_t base = 0);
  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
  ~Memory();

  /// kLimit if the device is full; `bytes` > 0.
  [[nodiscard]] Result<std::uint64_t> allocate(std::uint64_t bytes, Kind kind = Kind::kDevice);
  /// kNotFound if no allocation begins there.
  [[nodiscard]] Result<void> free(std::uint64_t address);

  /// Memory that lies elsewhere in this process and that kernels may access too; kLimit if it
  /// overlaps present memory. Not owned.
  [[nodiscard]] Result<void> add_foreign(Range range);
  /// kNotFound if no foreign range begins there.
  [[nodiscard]] Result<void> remove_foreign(std::uint64_t begin);

  /// Addresses without memory, at `hint` if it is a multiple of `align` and free. `bytes` is a
  /// multiple of kGranule, `align` a power of two from kGranule on. kLimit if the process has no
  /// such addresses left.
  [[nodiscard]] Result<std::uint64_t> reserve(std::uint64_t bytes, std::uint64_t align = kGranule,
                                              std::uint64_t hint = 0);
  /// kNotFound if no reservation of this size begins there; kLimit if something is mapped in it.
  [[nodiscard]] Result<void> release(Range range);
  /// Puts `range` of a file descriptor (of memory, at `file_offset`) at reserved addresses; kernels
  /// may not access it until set_accessible. kNotFound if it does not lie in a reservation, kLimit
  /// if something is mapped there.
  [[nodiscard]] Result<void> map(Range range, int fd, std::uint64_t file_offset);
  /// Unmaps whole mappings; kNotFound if `range` is not made of such.
  [[nodiscard]] Result<void> unmap(Range range);
  [[nodiscard]] Result<void> set_accessible(Range range, bool is_accessible);

  /// Takes bytes of the capacity for memory that is not mapped yet; kLimit if the device is full.
  [[nodiscard]] Result<void> charge(std::uint64_t bytes);
  void discharge(std::uint64_t bytes);

  /// The range that kernels may access and that holds the address, or nothing ({0, 0}).
  [[nodiscard]] Range find(std::uint64_t address) const;
  /// All that kernels may access. Made anew only after a change; never null, never changed.
  [[nodiscard]] Ranges ranges() const;
  /// True if the address belongs to the device's own addresses, in use or not.
  [[nodiscard]] bool is_own(std::uint64_t address) const;

  [[nodiscard]] std::uint64_t capacity_bytes() const;
  [[nodiscard]] std::uint64_t used_bytes() const;

 private:
  explicit Memory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kansoku::gpu::exec
