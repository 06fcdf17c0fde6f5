// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::trace {

/// zlib-format compressor (libdeflate: chunks are whole, so no stream is needed) whose state is
/// reused from chunk to chunk. Not shared between threads.
class Deflater {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Deflater>> create(int level);
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  /// Appends the compressed form of `raw` to `out`.
  void compress(ByteSpan raw, std::vector<std::byte>& out);

 private:
  struct Impl;
  explicit Deflater(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Inflates untrusted zlib data into `out` (replacing its content). kCorrupt if it is no zlib
/// stream or ends early, kLimit if it would grow beyond `bytes_max`.
[[nodiscard]] Result<void> inflate(ByteSpan untrusted, std::size_t bytes_max,
                                   std::vector<std::byte>& out);

}  // namespace kansoku::trace
