// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/unwind_table.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

namespace kansoku::capture::bpf {
namespace {

// Version, then how the address of .eh_frame, the count and the table are written: 4 bytes each,
// the first from its place, the table from the begin of the section.
constexpr std::array kHead{std::byte{1}, std::byte{0x1b}, std::byte{0x03}, std::byte{0x3b}};
constexpr std::size_t kCountAt = 8, kTableAt = 12, kEntryBytes = 8;

/// Reads a little-endian number of 4 bytes.
template <class T>
std::optional<T> number_at(const sys::ElfFile& file, std::uint64_t address) {
  static_assert(sizeof(T) == 4);
  const std::vector<std::byte> bytes = file.bytes_at(address, sizeof(T));
  T out{};
  if (bytes.size() != sizeof(T)) return std::nullopt;
  std::memcpy(&out, bytes.data(), sizeof(T));
  return out;
}

}  // namespace

std::optional<std::uint64_t> bytes_to_next_function(const sys::ElfFile& file,
                                                    std::uint64_t function) {
  const auto table = file.section(".eh_frame_hdr");
  if (!table || table->bytes < kTableAt) return std::nullopt;
  const std::vector<std::byte> head = file.bytes_at(table->address, kHead.size());
  if (head.size() != kHead.size() || std::memcmp(head.data(), kHead.data(), kHead.size()) != 0)
    return std::nullopt;
  const auto count = number_at<std::uint32_t>(file, table->address + kCountAt);
  if (!count || *count > (table->bytes - kTableAt) / kEntryBytes) return std::nullopt;
  const auto begin_of = [&](std::uint64_t i) -> std::optional<std::uint64_t> {
    const auto distance =
        number_at<std::int32_t>(file, table->address + kTableAt + i * kEntryBytes);
    if (!distance) return std::nullopt;
    return table->address + static_cast<std::uint64_t>(std::int64_t{*distance});
  };
  std::uint64_t low = 0, high = *count;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto begin = begin_of(middle);
    if (!begin) return std::nullopt;
    if (*begin < function) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low + 1 >= *count) return std::nullopt;
  const auto begin = begin_of(low), next = begin_of(low + 1);
  if (begin != function || !next || *next <= function) return std::nullopt;
  return *next - function;
}

}  // namespace kansoku::capture::bpf
