// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/inflate_stream.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace kansoku::trace::import {
namespace {

constexpr int kGzipWindowBits = 15 + 16;  // zlib: 16 more means a gzip header

}  // namespace

struct InflateStream::Gzip {
  z_stream state{};
  std::size_t file_bytes{0};
  bool is_open{false};
  bool at_end{false};            // of a member; another may follow
  std::optional<Error> failure;  // to tell once what came before it is handed out
  bool is_torn{false};
  std::vector<char> piece;
  Gzip() = default;
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() {
    if (is_open) inflateEnd(&state);
  }
};

bool is_gzip(ByteSpan bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

InflateStream::InflateStream(ByteSpan untrusted) : rest_(untrusted) {}
InflateStream::~InflateStream() = default;
InflateStream::InflateStream(InflateStream&&) noexcept = default;
InflateStream& InflateStream::operator=(InflateStream&&) noexcept = default;

Result<InflateStream> InflateStream::open(ByteSpan untrusted) {
  InflateStream stream(untrusted);
  if (!is_gzip(untrusted)) return stream;
  stream.gzip_ = std::make_unique<Gzip>();
  Gzip& gzip = *stream.gzip_;
  gzip.file_bytes = untrusted.size();
  if (inflateInit2(&gzip.state, kGzipWindowBits) != Z_OK)
    return Error{Code::kUnavailable, "start decompression: out of memory"};
  gzip.is_open = true;
  gzip.piece.resize(kPieceBytes);
  return stream;
}

bool InflateStream::is_torn() const {
  return gzip_ && gzip_->is_torn;
}

Result<std::string_view> InflateStream::next() {
  if (!gzip_) {
    const ByteSpan piece = rest_.first(std::min(rest_.size(), kPieceBytes));
    rest_ = rest_.subspan(piece.size());
    return as_text(piece);
  }
  Gzip& gzip = *gzip_;
  if (gzip.failure) return *gzip.failure;
  z_stream& state = gzip.state;
  state.next_out = reinterpret_cast<Bytef*>(gzip.piece.data());
  state.avail_out = static_cast<uInt>(gzip.piece.size());
  while (state.avail_out > 0) {
    if (gzip.at_end) {
      if (!is_gzip(rest_)) break;  // padding after the last member is allowed
      inflateReset(&state);
      gzip.at_end = false;
    }
    const std::size_t given =
        std::min<std::size_t>(rest_.size(), std::numeric_limits<uInt>::max() / 2);
    // zlib's interface lacks const; it does not write to its input.
    state.next_in = const_cast<Bytef*>(  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        reinterpret_cast<const Bytef*>(rest_.data()));
    state.avail_in = static_cast<uInt>(given);
    const int status = inflate(&state, Z_NO_FLUSH);
    rest_ = rest_.subspan(given - state.avail_in);
    if (status == Z_STREAM_END) {
      gzip.at_end = true;
    } else if (status != Z_OK) {
      gzip.is_torn = status == Z_BUF_ERROR && rest_.empty();
      gzip.failure = Error{Code::kCorrupt,
                           fmt::format("inflate at offset {}: {}", gzip.file_bytes - rest_.size(),
                                       gzip.is_torn ? "the file ends inside its compressed data"
                                                    : "damaged compressed data")};
      break;
    }
  }
  const bool is_empty = state.avail_out == gzip.piece.size();
  if (gzip.failure && is_empty) return *gzip.failure;
  return std::string_view(gzip.piece.data(), gzip.piece.size() - state.avail_out);
}

}  // namespace kansoku::trace::import
