// SPDX-License-Identifier: Apache-2.0
#include "sys/memory_search.h"

#include <algorithm>
#include <cstddef>

#include "sys/process_memory.h"

namespace kansoku::sys {
namespace {

constexpr std::uint64_t kBytesMax = std::uint64_t{2} << 30, kMappingBytesMax = 256U << 20;
constexpr std::size_t kChunkBytes = 4U << 20;

bool is_written_by_itself(const Mapping& mapping) {
  return mapping.writable && mapping.readable &&
         (mapping.path.empty() || mapping.path == "[heap]" || mapping.path.starts_with("[anon"));
}

}  // namespace

std::uint64_t search_memory(
    std::int32_t pid, std::span<const Mapping> mappings,
    const std::function<bool(ByteSpan untrusted, std::uint64_t address)>& visit) {
  std::vector<std::byte> buffer(kChunkBytes);
  std::uint64_t left = kBytesMax, not_searched = 0;
  bool goes_on = true;
  for (const Mapping& mapping : mappings) {
    if (!is_written_by_itself(mapping)) continue;
    const std::uint64_t bytes = mapping.end - mapping.begin;
    if (!goes_on || bytes > kMappingBytesMax || bytes > left) {
      not_searched += bytes;
      continue;
    }
    left -= bytes;
    for (std::uint64_t at = mapping.begin; goes_on && at < mapping.end; at += kChunkBytes) {
      const auto wanted =
          static_cast<std::size_t>(std::min<std::uint64_t>(kChunkBytes, mapping.end - at));
      const std::size_t got = read_process_memory(pid, at, std::span(buffer).first(wanted));
      goes_on = visit(ByteSpan(buffer).first(got), at);
      if (!goes_on) not_searched += mapping.end - at;
      if (got < wanted) break;  // holes of an arena that it has not touched yet
    }
  }
  return not_searched;
}

}  // namespace kansoku::sys
