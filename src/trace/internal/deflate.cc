// SPDX-License-Identifier: Apache-2.0
#include "trace/internal/deflate.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>

#include "common/check.h"

namespace kansoku::trace {
namespace {

struct DecompressorDeleter {
  void operator()(libdeflate_decompressor* state) const { libdeflate_free_decompressor(state); }
};

}  // namespace

struct Deflater::Impl {
  libdeflate_compressor* state{nullptr};
};

Deflater::Deflater(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Deflater::~Deflater() {
  libdeflate_free_compressor(impl_->state);
}

Result<std::unique_ptr<Deflater>> Deflater::create(int level) {
  auto impl = std::make_unique<Impl>();
  impl->state = libdeflate_alloc_compressor(level);
  if (impl->state == nullptr) {
    return Error{Code::kUnavailable, fmt::format("start compression at level {}: refused", level)};
  }
  return std::unique_ptr<Deflater>(new Deflater(std::move(impl)));
}

void Deflater::compress(ByteSpan raw, std::vector<std::byte>& out) {
  const std::size_t at = out.size();
  out.resize(at + libdeflate_zlib_compress_bound(impl_->state, raw.size()));
  const std::size_t used = libdeflate_zlib_compress(impl_->state, raw.data(), raw.size(),
                                                    out.data() + at, out.size() - at);
  CHECK(used != 0);  // the bound promises the room
  out.resize(at + used);
}

Result<void> inflate(ByteSpan untrusted, std::size_t bytes_max, std::vector<std::byte>& out) {
  const std::unique_ptr<libdeflate_decompressor, DecompressorDeleter> state(
      libdeflate_alloc_decompressor());
  if (!state) return Error{Code::kUnavailable, "start decompression: out of memory"};
  std::size_t room = std::min(bytes_max, std::max<std::size_t>(untrusted.size() * 8, 1U << 18));
  for (;;) {
    out.resize(room);
    std::size_t used = 0;
    const libdeflate_result result = libdeflate_zlib_decompress(
        state.get(), untrusted.data(), untrusted.size(), out.data(), out.size(), &used);
    if (result == LIBDEFLATE_SUCCESS) {
      out.resize(used);
      return {};
    }
    if (result != LIBDEFLATE_INSUFFICIENT_SPACE) {
      return Error{Code::kCorrupt, "inflate: not a whole zlib stream"};
    }
    if (room >= bytes_max)
      return Error{Code::kLimit, fmt::format("inflate: more than {} bytes", bytes_max)};
    room = std::min(bytes_max, room * 4);
  }
}

}  // namespace kansoku::trace
