// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "export/metrics.h"

namespace kansoku::exporter {

enum class TextFormat : std::uint8_t {
  kPrometheus,   // text format 0.0.4
  kOpenMetrics,  // OpenMetrics 1.0
};

/// The format that a scraper prefers, by its Accept header: OpenMetrics only if named, with a
/// weight above 0 and none lower than that of plain text. Never fails: in every other case the
/// answer is the older format. Source: RFC 9110, section 12.5.1.
[[nodiscard]] TextFormat negotiate(std::string_view untrusted_accept);
/// For the header Content-Type.
[[nodiscard]] std::string_view content_type(TextFormat format);
/// The snapshot as text. The same set gives the same bytes. Source: the published descriptions of
/// both formats.
[[nodiscard]] std::string to_text(const MetricSet& set, TextFormat format);

}  // namespace kansoku::exporter
