// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/line_table.h"

#include <algorithm>

namespace kansoku::capture::python {
namespace {

constexpr std::uint32_t kNoLine = 0;

/// Collects runs; neighbours of equal line become one.
class RunBuilder {
 public:
  explicit RunBuilder(std::uint32_t first_line) : line_(first_line) {}

  void advance_line(std::int64_t by) { line_ += by; }
  /// The next `bytes` bytes of code belong to the current line, or to none.
  void add(std::uint32_t bytes, bool has_line) {
    const bool is_line = has_line && line_ > 0 && line_ <= INT32_MAX;
    const std::uint32_t line = is_line ? static_cast<std::uint32_t>(line_) : kNoLine;
    if (bytes > 0 && (runs_.empty() || runs_.back().line != line)) runs_.push_back({end_, line});
    end_ += bytes;
  }
  /// The current line holds up to the end of the code.
  std::vector<LineRun> finish_open() {
    add(1, true);
    return std::move(runs_);
  }
  std::vector<LineRun> finish_closed() {
    line_ = 0;
    return finish_open();
  }

 private:
  std::vector<LineRun> runs_;
  std::int64_t line_;
  std::uint32_t end_{0};
};

std::uint8_t byte_at(ByteSpan bytes, std::size_t i) {
  return std::to_integer<std::uint8_t>(bytes[i]);
}

/// Pairs (bytes of code, line delta): the delta takes effect behind those bytes.
std::vector<LineRun> decode_lnotab(ByteSpan untrusted, std::uint32_t first_line) {
  RunBuilder runs(first_line);
  for (std::size_t i = 0; i + 1 < untrusted.size(); i += 2) {
    runs.add(byte_at(untrusted, i), true);
    runs.advance_line(static_cast<std::int8_t>(byte_at(untrusted, i + 1)));
  }
  return runs.finish_open();
}

/// Pairs (bytes of code, line delta): the delta is that of those bytes, -128 = no line.
std::vector<LineRun> decode_ranges(ByteSpan untrusted, std::uint32_t first_line) {
  constexpr std::int8_t kNone = -128;
  RunBuilder runs(first_line);
  for (std::size_t i = 0; i + 1 < untrusted.size(); i += 2) {
    const auto delta = static_cast<std::int8_t>(byte_at(untrusted, i + 1));
    if (delta != kNone) runs.advance_line(delta);
    runs.add(byte_at(untrusted, i), delta != kNone);
  }
  return runs.finish_closed();
}

/// Entries of a head byte 1cccclll (code c, l + 1 units of two bytes) and operands without bit 7.
class LocationReader {
 public:
  explicit LocationReader(ByteSpan untrusted) : bytes_(untrusted) {}

  [[nodiscard]] bool at_end() const { return next_ >= bytes_.size(); }
  [[nodiscard]] std::uint8_t take() { return at_end() ? 0 : byte_at(bytes_, next_++); }
  /// Six bits a byte, lowest first; bit 6 says that more follow.
  [[nodiscard]] std::uint32_t take_varint() {
    std::uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 6) {
      const std::uint8_t byte = take();
      value |= (byte & 63U) << shift;
      if ((byte & 64U) == 0) break;
    }
    return value;
  }
  [[nodiscard]] std::int64_t take_signed_varint() {
    const std::uint32_t value = take_varint();
    const auto size = static_cast<std::int64_t>(value >> 1);
    return (value & 1U) != 0 ? -size : size;
  }
  void skip_operands() {
    while (!at_end() && (byte_at(bytes_, next_) & 128U) == 0)
      ++next_;
  }

 private:
  ByteSpan bytes_;
  std::size_t next_{0};
};

std::vector<LineRun> decode_locations(ByteSpan untrusted, std::uint32_t first_line) {
  constexpr std::uint32_t kOneLine = 10;  // 10, 11, 12: line delta 0, 1, 2
  constexpr std::uint32_t kNoColumns = 13;
  constexpr std::uint32_t kLong = 14;
  constexpr std::uint32_t kNone = 15;
  RunBuilder runs(first_line);
  LocationReader in(untrusted);
  while (!in.at_end()) {
    const std::uint8_t head = in.take();
    if ((head & 128U) == 0) break;  // torn: an entry must start here
    const std::uint32_t code = (head >> 3U) & 15U;
    if (code >= kOneLine && code < kNoColumns) runs.advance_line(code - kOneLine);
    if (code == kNoColumns || code == kLong) runs.advance_line(in.take_signed_varint());
    in.skip_operands();
    runs.add(((head & 7U) + 1) * 2, code != kNone);
  }
  return runs.finish_closed();
}

}  // namespace

std::vector<LineRun> decode_line_table(LineTableKind kind, ByteSpan untrusted,
                                       std::uint32_t first_line) {
  switch (kind) {
    case LineTableKind::kLnotab:
      return decode_lnotab(untrusted, first_line);
    case LineTableKind::kRanges:
      return decode_ranges(untrusted, first_line);
    case LineTableKind::kLocations:
      return decode_locations(untrusted, first_line);
  }
  return {};
}

std::uint32_t line_at(const std::vector<LineRun>& runs, std::uint32_t offset) {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), offset,
                       [](std::uint32_t o, const LineRun& r) { return o < r.begin; });
  return after == runs.begin() ? kNoLine : std::prev(after)->line;
}

}  // namespace kansoku::capture::python
