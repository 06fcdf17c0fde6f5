// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kansoku {

enum class Severity { kInfo, kNotice, kDataLoss, kError };
enum class Origin { kCapture, kImport, kAnalysis };

/// One counter of lost, odd or skipped data. Its total travels with the trace and marks every
/// report built on it.
struct StatDef {
  std::string_view name;
  Severity severity;
  Origin origin;
  std::string_view advice;
};

/// "info", "notice", "data_loss", "error". Never null; any thread.
[[nodiscard]] std::string_view severity_name(Severity severity);
/// Inverse of severity_name; text nobody wrote gives kDataLoss, the cautious reading.
[[nodiscard]] Severity severity_from_name(std::string_view name);

}  // namespace kansoku

/// Declares a counter: STAT(ring_dropped_records, kDataLoss, kCapture, "BPF ring was full; raise
/// --ring-bytes")
#define STAT(id, severity, origin, advice)                                \
  inline constexpr ::kansoku::StatDef id {                                \
#id, ::kansoku::Severity::severity, ::kansoku::Origin::origin, advice \
  }
