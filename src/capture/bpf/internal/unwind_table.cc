// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/unwind_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "common/varint.h"

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

/// Reads from an address on; fails once and for all at the end of the bytes.
class TableReader {
 public:
  TableReader(const sys::ElfFile& file, std::uint64_t address, std::size_t bytes)
      : bytes_(file.bytes_at(address, bytes)), rest_(bytes_) {}
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  [[nodiscard]] std::uint8_t byte() { return fixed<std::uint8_t>(); }
  template <class T>
  [[nodiscard]] T fixed() {
    T out{};
    if (rest_.size() < sizeof(T)) return fail(out);
    std::memcpy(&out, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return out;
  }
  [[nodiscard]] std::uint64_t uleb128() {
    const auto out = take_varint(rest_, VarintForm::kAny);
    return out ? *out : fail(std::uint64_t{0});
  }
  [[nodiscard]] std::size_t offset() const { return bytes_.size() - rest_.size(); }
  [[nodiscard]] bool has_failed() const { return has_failed_; }

 private:
  template <class T>
  T fail(T nothing) {
    has_failed_ = true;
    rest_ = {};
    return nothing;
  }

  std::vector<std::byte> bytes_;
  ByteSpan rest_;
  bool has_failed_{false};
};

// How addresses are written (DW_EH_PE_*).
constexpr std::uint8_t kOmitted = 0xff, kRelative4 = 0x1b, kUleb128 = 0x01, kUdata4 = 0x03;
constexpr std::size_t kHeadBytesMax = 64, kLsdaBytesMax = 1U << 18, kPadsMax = 1U << 14;

/// How the common part of the description at `described` says that the address of the table of
/// handlers is written; kOmitted: there is none. Nothing: unknown.
std::optional<std::uint8_t> handlers_encoding(const sys::ElfFile& file, std::uint64_t described) {
  const auto back = number_at<std::uint32_t>(file, described + 4);
  if (!back || *back > described + 4) return std::nullopt;
  TableReader reader(file, described + 4 - *back + 8, kHeadBytesMax);
  static_cast<void>(reader.byte());  // version
  std::string text;
  for (std::uint8_t one = reader.byte(); one != 0 && !reader.has_failed(); one = reader.byte())
    text += static_cast<char>(one);
  if (reader.has_failed()) return std::nullopt;
  if (text.find('L') == std::string::npos) return kOmitted;
  if (text.front() != 'z') return std::nullopt;
  // Alignments of code and data, the return address's register, the length of the augmentation.
  for (int i = 0; i < 4; ++i)
    static_cast<void>(reader.uleb128());
  for (const char one : text.substr(1)) {
    if (one == 'L') {
      const std::uint8_t out = reader.byte();
      return reader.has_failed() ? std::nullopt : std::optional(out);
    }
    if (one == 'R') {
      static_cast<void>(reader.byte());
    } else if (one == 'P') {
      constexpr std::uint8_t kSizeMask = 0x0f, kSdata4 = 0x0b;
      const std::uint8_t size = reader.byte() & kSizeMask;
      if (size != kUdata4 && size != kSdata4) return std::nullopt;
      static_cast<void>(reader.fixed<std::uint32_t>());
    } else if (one != 'S' && one != 'B') {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// Code, and the place of its description.
struct Described {
  CodeRange code;
  std::uint64_t at{0};
};

std::optional<Described> description_of(const sys::ElfFile& file, std::uint64_t address) {
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
  return Described{{*begin, *bytes, handlers_encoding(file, *described) != kOmitted}, *described};
}

/// Place of its table of handlers; 0: it has none. Nothing: unknown.
std::optional<std::uint64_t> handlers_of(const sys::ElfFile& file, std::uint64_t described) {
  const auto encoding = handlers_encoding(file, described);
  if (!encoding) return std::nullopt;
  if (*encoding == kOmitted) return 0;
  if (*encoding != kRelative4) return std::nullopt;
  constexpr std::uint64_t kAugmentationAt = 16;
  TableReader reader(file, described + kAugmentationAt, kHeadBytesMax);
  static_cast<void>(reader.uleb128());  // length
  const std::uint64_t place = described + kAugmentationAt + reader.offset();
  const auto distance = reader.fixed<std::int32_t>();
  if (reader.has_failed()) return std::nullopt;
  return distance == 0 ? 0 : place + static_cast<std::uint64_t>(std::int64_t{distance});
}

}  // namespace

std::optional<CodeRange> code_around(const sys::ElfFile& file, std::uint64_t address) {
  const auto found = description_of(file, address);
  return found ? std::optional(found->code) : std::nullopt;
}

std::optional<std::vector<std::uint64_t>> landing_pads(const sys::ElfFile& file,
                                                       const CodeRange& code) {
  const auto found = description_of(file, code.begin);
  if (!found || found->code.begin != code.begin) return std::nullopt;
  const auto table = handlers_of(file, found->at);
  if (!table) return std::nullopt;
  std::vector<std::uint64_t> out;
  if (*table == 0) return out;
  TableReader reader(file, *table, kLsdaBytesMax);
  if (reader.byte() != kOmitted) return std::nullopt;  // pads are counted from the code's begin
  if (reader.byte() != kOmitted) static_cast<void>(reader.uleb128());  // types of exceptions
  const std::uint8_t encoding = reader.byte();
  if (encoding != kUleb128 && encoding != kUdata4) return std::nullopt;
  const auto number = [&]() -> std::uint64_t {
    return encoding == kUleb128 ? reader.uleb128() : reader.fixed<std::uint32_t>();
  };
  const std::uint64_t bytes = reader.uleb128();
  const std::size_t begin = reader.offset();
  while (reader.offset() - begin < bytes) {
    for (int i = 0; i < 2; ++i)
      static_cast<void>(number());  // begin of the calls, and their bytes
    const std::uint64_t pad = number();
    static_cast<void>(reader.uleb128());  // the action there
    if (reader.has_failed() || pad >= found->code.bytes || out.size() == kPadsMax)
      return std::nullopt;
    if (pad != 0) out.push_back(found->code.begin + pad);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace kansoku::capture::bpf
