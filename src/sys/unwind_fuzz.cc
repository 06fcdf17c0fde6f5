// SPDX-License-Identifier: Apache-2.0
// Any bytes as call frame information: a row or none, and nothing else.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/check.h"
#include "sys/unwind.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku::sys;
  if (size < 2 || size > (1U << 16)) return 0;
  constexpr std::uint64_t kBase = 0x400000;
  const auto read = [&](std::uint64_t address, std::span<std::byte> into) -> std::size_t {
    if (address < kBase || address - kBase >= size) return 0;
    const std::size_t from = address - kBase, count = std::min(into.size(), size - from);
    std::memcpy(into.data(), data + from, count);
    return count;
  };
  for (std::uint64_t offset = 0; offset < 64; ++offset)
    if (const auto row = unwind_row(kBase, read, kBase - 32 + offset))
      CHECK(row->cfa_register < kUnwindRegisters);
  return 0;
}
