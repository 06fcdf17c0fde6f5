// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/result.h"

namespace kansoku {

using ByteSpan = std::span<const std::byte>;

[[nodiscard]] inline ByteSpan as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
[[nodiscard]] inline std::string_view as_text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Sink of a stream of bytes. `append` takes all of `bytes` or, on failure, none of it.
class ByteSink {
 public:
  ByteSink() = default;
  ByteSink(const ByteSink&) = delete;
  ByteSink& operator=(const ByteSink&) = delete;
  virtual ~ByteSink() = default;
  [[nodiscard]] virtual Result<void> append(ByteSpan bytes) = 0;
};

/// A sink in memory; with a limit it fails like a full disk once `limit` bytes would be passed.
class MemorySink final : public ByteSink {
 public:
  explicit MemorySink(std::size_t limit = SIZE_MAX) : limit_(limit) {}
  [[nodiscard]] Result<void> append(ByteSpan bytes) override {
    if (bytes.size() > limit_ - data_.size())
      return Error{Code::kLimit, "write memory sink: no space left"};
    data_.append(as_text(bytes));
    return {};
  }
  [[nodiscard]] const std::string& data() const { return data_; }

 private:
  std::size_t limit_;
  std::string data_;
};

/// Bounded reader over untrusted little-endian bytes: every read is checked against the bytes left.
/// Does not own the bytes.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan untrusted) : all_bytes_(untrusted.size()), rest_(untrusted) {}

  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }
  [[nodiscard]] std::size_t offset() const { return all_bytes_ - rest_.size(); }

  /// The next sizeof(T) bytes as a T; kCorrupt, naming `what` and the offset, if fewer are left.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] Result<T> read(std::string_view what) {
    TRY(const ByteSpan bytes, take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  /// The next `count` bytes, borrowed from the input; kCorrupt if fewer are left.
  [[nodiscard]] Result<ByteSpan> take(std::size_t count, std::string_view what) {
    if (count > rest_.size()) {
      return Error{Code::kCorrupt, "read " + std::string(what) + " at offset " +
                                       std::to_string(offset()) + ": " + std::to_string(count) +
                                       " bytes wanted, " + std::to_string(rest_.size()) + " left"};
    }
    const ByteSpan taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

 private:
  std::size_t all_bytes_;
  ByteSpan rest_;
};

}  // namespace kansoku
