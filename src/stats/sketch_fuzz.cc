// SPDX-License-Identifier: Apache-2.0
// Any bytes as a quantile sketch: refused as corrupt, or a sketch whose quantiles rise within its
// range and whose bytes are the same again.
#include "stats/sketch.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kansoku::stats::LogSketch;
  const kansoku::ByteSpan bytes = std::as_bytes(std::span<const std::uint8_t>(data, size));
  const auto sketch = LogSketch::decode(bytes);
  if (!sketch) {
    CHECK(sketch.error().code == kansoku::Code::kCorrupt);
    return 0;
  }
  std::string again;
  sketch->encode(again);
  CHECK(again == kansoku::as_text(bytes));
  CHECK(sketch->memory_bytes() < 65'536);
  double before = 0;
  for (const double share : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const double value = sketch->quantile(share);
    CHECK(value >= before && value <= 1.02 * LogSketch::kMost);
    before = value;
  }
  LogSketch sum = *sketch;
  sum.merge(*sketch);
  CHECK(sum.count() == 2 * sketch->count() && sum.quantile(0.5) <= before);
  return 0;
}
