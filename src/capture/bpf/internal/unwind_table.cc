// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/unwind_table.h"

#include <algorithm>
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

/// Whether the common part of what is described at `described` has a place for handlers: an L in
/// the text behind its length, a zero and a version.
bool has_handlers(const sys::ElfFile& file, std::uint64_t described) {
  const auto back = number_at<std::uint32_t>(file, described + 4);
  if (!back || *back > described + 4) return false;
  constexpr std::size_t kTextAt = 9, kTextBytes = 8;
  const std::vector<std::byte> text = file.bytes_at(described + 4 - *back + kTextAt, kTextBytes);
  const auto end = std::find(text.begin(), text.end(), std::byte{0});
  return std::find(text.begin(), end, std::byte{'L'}) != end;
}

}  // namespace

std::optional<CodeRange> code_around(const sys::ElfFile& file, std::uint64_t address) {
  const auto table = file.section(".eh_frame_hdr");
  if (!table || table->bytes < kTableAt) return std::nullopt;
  const std::vector<std::byte> head = file.bytes_at(table->address, kHead.size());
  if (head.size() != kHead.size() || std::memcmp(head.data(), kHead.data(), kHead.size()) != 0)
    return std::nullopt;
  const auto count = number_at<std::uint32_t>(file, table->address + kCountAt);
  if (!count || *count > (table->bytes - kTableAt) / kEntryBytes) return std::nullopt;
  // An entry is where code begins and where it is described.
  const auto entry = [&](std::uint64_t i, std::uint64_t part) -> std::optional<std::uint64_t> {
    const auto distance = number_at<std::int32_t>(
        file, table->address + kTableAt + i * kEntryBytes + part * sizeof(std::int32_t));
    if (!distance) return std::nullopt;
    return table->address + static_cast<std::uint64_t>(std::int64_t{*distance});
  };
  std::uint64_t low = 0, high = *count;  // the first that begins behind `address`
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto begin = entry(middle, 0);
    if (!begin) return std::nullopt;
    (*begin <= address ? low : high) = *begin <= address ? middle + 1 : middle;
  }
  if (low == 0) return std::nullopt;
  const auto begin = entry(low - 1, 0), described = entry(low - 1, 1);
  if (!begin || !described) return std::nullopt;
  // Length, distance of the common part, begin from its place, bytes.
  const auto distance = number_at<std::int32_t>(file, *described + 8);
  const auto bytes = number_at<std::uint32_t>(file, *described + 12);
  if (!distance || !bytes) return std::nullopt;
  if (*described + 8 + static_cast<std::uint64_t>(std::int64_t{*distance}) != *begin)
    return std::nullopt;  // written in another way
  if (address - *begin >= *bytes) return std::nullopt;
  return CodeRange{*begin, *bytes, has_handlers(file, *described)};
}

}  // namespace kansoku::capture::bpf
