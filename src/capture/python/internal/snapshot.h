// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "capture/python/sampler.h"

namespace kansoku::capture::python {

inline constexpr std::uint64_t kPageBytes = 4096;

/// The T that lies `offset` bytes behind `bytes`, aligned or not.
template <class T>
[[nodiscard]] T load_at(const std::byte* bytes, std::int32_t offset) {
  T value{};
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

/// Copies of pieces of a process's memory, fetched many at a time. Wants are read in the order in
/// which they were queued. Bytes that cannot be read are simply absent. Holds at most 8 MiB.
class Snapshot {
 public:
  struct Costs {
    std::uint64_t read_calls{0}, read_ranges{0};
  };
  /// `batched` false: one call per range, to measure the saving of batching.
  Snapshot(RemoteMemory& memory, bool batched) : memory_(memory), batched_(batched) {}

  void clear();
  /// Queues [address, address + bytes) for the next fetch; addresses that no user process can have
  /// are ignored.
  void want(std::uint64_t address, std::size_t bytes) { queue(address, bytes, 0); }
  /// Queues a second copy of a place, which find_again() gives.
  void want_again(std::uint64_t address, std::size_t bytes) { queue(address, bytes, 1); }
  /// Reads the queued wants. False if there was something and none of it could be read.
  bool fetch();
  /// The copy of [address, address + bytes), or null. Valid until the next fetch or clear.
  [[nodiscard]] const std::byte* find(std::uint64_t address, std::size_t bytes) const {
    return find_in(spans_[0], address, bytes);
  }
  [[nodiscard]] const std::byte* find_again(std::uint64_t address, std::size_t bytes) const {
    return find_in(spans_[1], address, bytes);
  }
  template <class T>
  [[nodiscard]] std::optional<T> get(std::uint64_t address) const {
    const std::byte* bytes = find(address, sizeof(T));
    if (bytes == nullptr) return std::nullopt;
    T value{};
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  [[nodiscard]] const Costs& costs() const { return costs_; }

 private:
  struct Span {
    std::uint64_t address{0};
    std::size_t bytes{0};
    std::size_t at{0};  // in arena_
    std::uint8_t copy{0};
  };
  using Spans = std::vector<Span>;
  void queue(std::uint64_t address, std::size_t bytes, std::uint8_t copy);
  [[nodiscard]] const std::byte* find_in(const Spans& spans, std::uint64_t address,
                                         std::size_t bytes) const;
  bool read_queued(std::size_t first, std::size_t last);

  RemoteMemory& memory_;
  const bool batched_;
  std::vector<std::byte> arena_;
  Spans queued_;
  std::array<Spans, 2> spans_;  // of each copy, by address
  std::vector<RemoteMemory::Range> ranges_;
  std::size_t longest_bytes_{0};
  Costs costs_;
};

/// True for an address that a user process on x86-64 can have and that is aligned as every object
/// of Python is.
[[nodiscard]] constexpr bool is_plausible(std::uint64_t address) {
  constexpr std::uint64_t kFirst = 4096;
  constexpr std::uint64_t kEnd = (std::uint64_t{1} << 47) - 4096;
  return address >= kFirst && address < kEnd && address % 8 == 0;
}

}  // namespace kansoku::capture::python
