// SPDX-License-Identifier: Apache-2.0
#include "trace/internal/deflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "common/check.h"

namespace kansoku::trace {
namespace {

// zlib's interface predates const.
Bytef* input_of(ByteSpan bytes) {
  return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
}

class InflateState {
 public:
  InflateState() { ok_ = inflateInit(&stream_) == Z_OK; }
  InflateState(const InflateState&) = delete;
  InflateState& operator=(const InflateState&) = delete;
  ~InflateState() {
    if (ok_) inflateEnd(&stream_);
  }
  [[nodiscard]] bool ok() const { return ok_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
  bool ok_{false};
};

}  // namespace

struct Deflater::Impl {
  z_stream stream{};
};

Deflater::Deflater(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Deflater::~Deflater() {
  deflateEnd(&impl_->stream);
}

Result<std::unique_ptr<Deflater>> Deflater::create(int level) {
  auto impl = std::make_unique<Impl>();
  if (deflateInit(&impl->stream, level) != Z_OK) {
    return Error{Code::kUnavailable, fmt::format("start zlib at level {}: refused", level)};
  }
  return std::unique_ptr<Deflater>(new Deflater(std::move(impl)));
}

void Deflater::compress(ByteSpan raw, std::vector<std::byte>& out) {
  z_stream& stream = impl_->stream;
  deflateReset(&stream);
  const std::size_t at = out.size();
  out.resize(at + deflateBound(&stream, static_cast<uLong>(raw.size())));
  stream.next_in = input_of(raw);
  stream.avail_in = static_cast<uInt>(raw.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data() + at);
  stream.avail_out = static_cast<uInt>(out.size() - at);
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);  // deflateBound promises the room
  out.resize(out.size() - stream.avail_out);
}

Result<void> inflate(ByteSpan untrusted, std::size_t bytes_max, std::vector<std::byte>& out) {
  InflateState state;
  if (!state.ok()) return Error{Code::kUnavailable, "start zlib: out of memory"};
  z_stream& stream = state.stream();
  stream.next_in = input_of(untrusted);
  stream.avail_in = static_cast<uInt>(untrusted.size());
  out.resize(std::min(bytes_max, std::max<std::size_t>(untrusted.size() * 6, 65536)));
  std::size_t used = 0;
  for (;;) {
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + used);
    stream.avail_out = static_cast<uInt>(out.size() - used);
    const int status = ::inflate(&stream, Z_NO_FLUSH);
    used = out.size() - stream.avail_out;
    if (status == Z_STREAM_END) break;
    if (status != Z_OK && status != Z_BUF_ERROR)
      return Error{Code::kCorrupt, "inflate: not a zlib stream"};
    if (stream.avail_out != 0) return Error{Code::kCorrupt, "inflate: the zlib stream ends early"};
    if (out.size() >= bytes_max)
      return Error{Code::kLimit, fmt::format("inflate: more than {} bytes", bytes_max)};
    out.resize(std::min(bytes_max, out.size() * 2));
  }
  out.resize(used);
  return {};
}

}  // namespace kansoku::trace
