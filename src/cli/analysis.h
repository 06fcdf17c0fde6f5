// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "common/json.h"
#include "common/result.h"
#include "diagnose/diagnose.h"

namespace kansoku::cli {

/// A trace read and diagnosed.
struct Analysis {
  diagnose::Diagnosis diagnosis;
  Json json;         // kansoku.diagnosis/1
  Json view;         // kansoku.view/1
  std::string text;  // for a terminal
  bool has_findings{false};
};

/// Reads the trace at `path` and diagnoses it; kCorrupt names the damage. Prints a progress line to
/// standard error when it takes longer than two seconds.
[[nodiscard]] Result<Analysis> analyse(const std::string& path, std::uint64_t seed);

/// Writes the self-contained HTML report (mode 0600).
[[nodiscard]] Result<void> write_report(const Analysis& analysis, const std::string& path);

}  // namespace kansoku::cli
