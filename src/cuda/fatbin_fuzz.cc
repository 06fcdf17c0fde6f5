// SPDX-License-Identifier: Apache-2.0
// Hostile containers: reading ends, unpacked data stay within bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "cuda/fatbin.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku::cuda;
  const kansoku::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto entries = read_fatbin(bytes);
  if (!entries) return 0;
  for (const FatbinEntry& entry : *entries) {
    if (entry.payload.size() > size) std::abort();
    // Headers may promise more than a test should allocate.
    if (entry.uncompressed_bytes > (std::size_t{1} << 20)) continue;
    const auto text = unpack(entry);
    if (text && entry.compression != Compression::kNone && text->size() > entry.uncompressed_bytes)
      std::abort();
  }
  return 0;
}
