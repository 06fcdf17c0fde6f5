// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "common/bytes.h"
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

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] ByteSpan bytes() const { return {bytes_.get(), size_}; }
  void clear() { size_ = 0; }
  void reserve(std::size_t count) {
    if (count > capacity_) grow(count);
  }

  void varint(std::uint64_t value) {
    size_ = static_cast<std::size_t>(put_varint(room(10), value) - bytes_.get());
  }
  /// For messages encoded by hand: a place for up to `count` bytes, and how many came to it.
  /// Nothing else may be called between the two.
  [[nodiscard]] std::byte* claim(std::size_t count) { return room(count); }
  void claimed(const std::byte* end) { size_ = static_cast<std::size_t>(end - bytes_.get()); }
  /// Writes a varint of at most 10 bytes; returns the place behind it.
  [[nodiscard]] static std::byte* put_varint(std::byte* at, std::uint64_t value) {
    while (value >= 0x80) {
      *at++ = static_cast<std::byte>(value | 0x80);
      value >>= 7;
    }
    *at++ = static_cast<std::byte>(value);
    return at;
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
    std::memcpy(room(sizeof(value)), &value, sizeof(value));
    size_ += sizeof(value);
  }
  void text(std::uint32_t field, std::string_view value) {
    varint(std::uint64_t{field} << 3 | 2);
    varint(value.size());
    raw(as_bytes(value));
  }
  void raw(ByteSpan encoded) {
    if (encoded.empty()) return;
    std::memcpy(room(encoded.size()), encoded.data(), encoded.size());
    size_ += encoded.size();
  }
  /// Opens a nested message; pass its result to close(). Its size must stay below kMessageBytesMax.
  [[nodiscard]] std::size_t open(std::uint32_t field) { return open_width(field, 2); }
  void close(std::size_t mark) { close_width(mark, 2); }
  [[nodiscard]] std::size_t open_large(std::uint32_t field) { return open_width(field, 4); }
  void close_large(std::size_t mark) { close_width(mark, 4); }

 private:
  // Not std::vector: its insert() and resize() at every varint took most of the writer's time.
  std::byte* room(std::size_t count) {
    if (capacity_ - size_ < count) grow(size_ + count);
    return bytes_.get() + size_;
  }
  void grow(std::size_t count) {
    capacity_ = std::max<std::size_t>({count, 2 * capacity_, 256});
    auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity_);
    if (size_ != 0) std::memcpy(larger.get(), bytes_.get(), size_);
    bytes_ = std::move(larger);
  }
  std::size_t open_width(std::uint32_t field, std::size_t width) {
    varint(std::uint64_t{field} << 3 | 2);
    static_cast<void>(room(width));
    return size_ += width;
  }
  void close_width(std::size_t mark, std::size_t width) {
    std::uint64_t length = size_ - mark;
    CHECK(length <= (width == 2 ? kMessageBytesMax : kLargeBytesMax));
    for (std::size_t i = 0; i < width; ++i) {
      const bool is_last = i + 1 == width;
      bytes_[mark - width + i] = static_cast<std::byte>((length & 0x7f) | (is_last ? 0 : 0x80));
      length >>= 7;
    }
  }
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_{0}, capacity_{0};
};

}  // namespace kansoku::trace
