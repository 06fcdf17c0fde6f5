// SPDX-License-Identifier: Apache-2.0
// Any bytes as a host's summary: refused with a reason, or a summary within the limits whose bytes
// are the same again.
#include "fleet/summary.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "fleet/cluster_rows.h"

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
  if (const auto part = fleet::decode_cluster_part(bytes, 64); part) {
    CHECK(part->features.size() == part->axes.size());
    for (const fleet::ClusterAxis& axis : part->axes)
      CHECK(std::isfinite(axis.of(1)) && std::isfinite(axis.floor));
    const auto written = fleet::encode_cluster_part(part->features, part->axes, part->rows);
    const auto again = fleet::decode_cluster_part(as_bytes(written), 64);
    CHECK(again.has_value() && again->rows.rows() == part->rows.rows());
  }
  return 0;
}
