// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/call.h"

#include <algorithm>
#include <limits>

namespace kansoku::capture::outside {
namespace {

constexpr std::array<std::string_view, kKeys> kKeyNames{
    "function", "stream",   "event",    "bytes",  "width",   "height",   "depth",
    "count",    "src_type", "dst_type", "src",    "dst",     "module",   "library",
    "kernel",   "graph",    "exec",     "child",  "node",    "pointer",  "pitch",
    "context",  "grid_x",   "grid_y",   "grid_z", "block_x", "block_y",  "block_z",
    "shared",   "ret",      "device",   "stub",   "grid_xy", "block_xy", "size0",
    "size1",    "size2",    "size3",    "size4",  "size5",   "size6"};

constexpr std::uint64_t kLegacyStream = 1, kPerThreadStream = 2;  // special handles of cuda.h
constexpr std::uint64_t kHost = 1, kDevice = 2;                   // CUmemorytype

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<std::uint64_t>::max() : out;
}

/// Bytes of a batch of lines, as far as all of them were read.
std::optional<std::uint64_t> bytes_of_batch(const Call& call) {
  const std::uint64_t count = call.number(Key::kCount);
  if (count > kSizes) return std::nullopt;
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto key = static_cast<Key>(static_cast<std::size_t>(Key::kSize0) + i);
    if (!call.has(key) || __builtin_add_overflow(out, call.number(key), &out)) return std::nullopt;
  }
  return out;
}

char letter(std::uint64_t memory_type) {
  return memory_type == kHost ? 'H' : memory_type == kDevice ? 'D' : '?';
}

}  // namespace

std::optional<Key> key_of(std::string_view capture) {
  const auto found = std::find(kKeyNames.begin(), kKeyNames.end(), capture);
  if (found == kKeyNames.end()) return std::nullopt;
  return static_cast<Key>(found - kKeyNames.begin());
}

std::optional<std::uint64_t> bytes_of(const Call& call) {
  if (call.has(Key::kBytes)) return call.number(Key::kBytes);
  if (call.has(Key::kPitch) && call.has(Key::kHeight))
    return times(call.number(Key::kPitch), call.number(Key::kHeight));
  if (call.has(Key::kSize0)) return bytes_of_batch(call);
  // In a batch of boxes, only the first is read.
  if (!call.has(Key::kWidth) || (call.has(Key::kCount) && call.number(Key::kCount) != 1))
    return std::nullopt;
  std::uint64_t out = times(call.number(Key::kWidth), call.entry->element_bytes);
  if (call.has(Key::kHeight)) out = times(out, call.number(Key::kHeight));
  if (call.has(Key::kDepth)) out = times(out, call.number(Key::kDepth));
  return out;
}

std::uint64_t operations_of(const Call& call) {
  const auto bytes = bytes_of(call);
  if (bytes && *bytes == 0) return 0;
  if (!call.has(Key::kCount)) return 1;
  std::uint64_t out = call.number(Key::kCount);
  for (std::size_t i = 0; bytes && call.has(Key::kSize0) && i < call.number(Key::kCount); ++i)
    out -= call.number(static_cast<Key>(static_cast<std::size_t>(Key::kSize0) + i)) == 0 ? 1 : 0;
  return out;
}

std::string_view direction_of(const Call& call) {
  if (!call.entry->direction.empty()) return call.entry->direction;
  if (!call.has(Key::kSrcType) || !call.has(Key::kDstType)) return "unknown";
  const char from = letter(call.number(Key::kSrcType)), to = letter(call.number(Key::kDstType));
  if (from == 'H') return to == 'D' ? "HtoD" : to == 'H' ? "HtoH" : "unknown";
  if (from == 'D') return to == 'D' ? "DtoD" : to == 'H' ? "DtoH" : "unknown";
  return "unknown";
}

bool waits(const Call& call) {
  return call.entry->waits && direction_of(call) == "DtoH";
}

StreamId stream_of(const Call& call) {
  const std::uint64_t handle = call.number(Key::kStream);
  if (handle == kPerThreadStream || (handle == 0 && call.per_thread))
    return {kPerThreadStream, call.tid};
  return {handle == kLegacyStream ? 0 : handle, 0};
}

}  // namespace kansoku::capture::outside
