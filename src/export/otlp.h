// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "export/metrics.h"

namespace kansoku::exporter {

/// Sender, as OpenTelemetry's resource attributes.
struct OtlpSource {
  std::string host;               // host.name
  std::string version;            // service.version
  std::string instance;           // service.instance.id; may be empty
  std::int64_t start_wall_ns{0};  // since when counters count
};

/// For the header Content-Type.
inline constexpr std::string_view kOtlpContentType = "application/x-protobuf";
/// Path of OTLP/HTTP for metrics, below the address of a collector.
inline constexpr std::string_view kOtlpMetricsPath = "/v1/metrics";

/// The snapshot as an ExportMetricsServiceRequest: gauges, monotonic cumulative sums and
/// histograms, all at `now_wall_ns` unless they say otherwise. The label "job" becomes the
/// service.name of a resource of its own; series without one are of "kansoku". The same input gives
/// the same bytes.
/// Source: opentelemetry-proto 1.x, metrics.proto; field numbers only.
[[nodiscard]] std::string to_otlp(const MetricSet& set, const OtlpSource& source,
                                  std::int64_t now_wall_ns);

}  // namespace kansoku::exporter
