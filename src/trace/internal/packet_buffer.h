// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/check.h"

namespace kansoku::trace {

/// Protobuf encoder for nested messages into one buffer, without allocation once the buffer has
/// grown. Lengths of nested messages are written as fixed-width varints (2 bytes below 16 KiB) and
/// filled in when the message is closed, so nothing is encoded twice or moved.
class PacketBuffer {
 public:
  static constexpr std::size_t kMessageBytesMax =
      (1U << 14) - 1;  // of a message opened with open()
  static constexpr std::size_t kLargeBytesMax =
      (1U << 28) - 1;  // of a message opened with open_large()

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }
  void reserve(std::size_t count) { bytes_.reserve(count); }

  void varint(std::uint64_t value) {
    std::byte out[10];
    std::size_t count = 0;
    while (value >= 0x80) {
      out[count++] = static_cast<std::byte>(value | 0x80);
      value >>= 7;
    }
    out[count++] = static_cast<std::byte>(value);
    bytes_.insert(bytes_.end(), out, out + count);
  }
  void uint(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
  }
  void sint(std::uint32_t field, std::int64_t value) {
    uint(field, static_cast<std::uint64_t>(value));
  }
  void fixed64(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3 | 1);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(value));
    std::memcpy(bytes_.data() + at, &value, sizeof(value));
  }
  void text(std::uint32_t field, std::string_view value) {
    varint(std::uint64_t{field} << 3 | 2);
    varint(value.size());
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    bytes_.insert(bytes_.end(), data, data + value.size());
  }
  void raw(const std::vector<std::byte>& encoded) {
    bytes_.insert(bytes_.end(), encoded.begin(), encoded.end());
  }
  /// Opens a nested message; pass what it returns to close(). Its size must stay below
  /// kMessageBytesMax.
  [[nodiscard]] std::size_t open(std::uint32_t field) { return open_width(field, 2); }
  void close(std::size_t mark) { close_width(mark, 2); }
  [[nodiscard]] std::size_t open_large(std::uint32_t field) { return open_width(field, 4); }
  void close_large(std::size_t mark) { close_width(mark, 4); }

 private:
  std::size_t open_width(std::uint32_t field, std::size_t width) {
    varint(std::uint64_t{field} << 3 | 2);
    bytes_.resize(bytes_.size() + width);
    return bytes_.size();
  }
  void close_width(std::size_t mark, std::size_t width) {
    std::uint64_t length = bytes_.size() - mark;
    CHECK(length <= (width == 2 ? kMessageBytesMax : kLargeBytesMax));
    for (std::size_t i = 0; i < width; ++i) {
      const bool is_last = i + 1 == width;
      bytes_[mark - width + i] = static_cast<std::byte>((length & 0x7f) | (is_last ? 0 : 0x80));
      length >>= 7;
    }
  }
  std::vector<std::byte> bytes_;
};

}  // namespace kansoku::trace
