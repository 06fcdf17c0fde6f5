// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::trace::import {

/// The text of a file piece by piece: inflated if the bytes begin as gzip does, else as it is.
/// Holds one piece of at most `kPieceBytes` inflated text. Borrows the bytes. Single-threaded.
class InflateStream {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

  [[nodiscard]] static Result<InflateStream> open(ByteSpan untrusted);
  ~InflateStream();
  InflateStream(InflateStream&&) noexcept;
  InflateStream& operator=(InflateStream&&) noexcept;

  /// The next piece, valid until the next call; empty at the end. kCorrupt names the offset in the
  /// compressed file.
  [[nodiscard]] Result<std::string_view> next();
  /// True once next() has failed because the file ends inside its compressed data: the pieces
  /// before are whole.
  [[nodiscard]] bool is_torn() const;

 private:
  struct Gzip;
  explicit InflateStream(ByteSpan untrusted);
  ByteSpan rest_;
  std::unique_ptr<Gzip> gzip_;  // null: the file is not compressed
};

/// True if the bytes begin as a gzip file does. Any thread.
[[nodiscard]] bool is_gzip(ByteSpan bytes);

}  // namespace kansoku::trace::import
