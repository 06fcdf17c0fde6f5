// SPDX-License-Identifier: Apache-2.0
// Any bytes as a host's summary: refused with a reason, or a summary within the limits whose bytes
// are the same again.
#include "fleet/summary.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku;  // NOLINT(google-build-using-namespace)
  const ByteSpan bytes = std::as_bytes(std::span<const std::uint8_t>(data, size));
  const auto summary = fleet::decode_summary(bytes);
  if (!summary) {
    CHECK(summary.error().what.find("fleet summary") != std::string::npos);
    CHECK(summary.error().code != Code::kInternal);
  } else {
    const auto again = fleet::encode_summary(*summary);
    CHECK(again.has_value() && *again == as_text(bytes));
    for (const fleet::SummaryPart& part : summary->parts) {
      CHECK(part.bytes.size() <= size);
      CHECK(part.job == fleet::kNoIndex || part.job < summary->jobs.size());
      if (part.kind == fleet::PartKind::kSketch) CHECK(part.feature < summary->features.size());
    }
  }
  if (const auto counters = fleet::decode_counters(bytes); counters)
    CHECK(fleet::encode_counters(*counters) == as_text(bytes));
  return 0;
}
