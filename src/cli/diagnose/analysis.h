// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/diagnose/sources.h"
#include "common/json.h"
#include "common/result.h"
#include "diagnose/diagnose.h"

namespace kansoku::cli {

/// A trace read and diagnosed.
struct Analysis {
  diagnose::Diagnosis diagnosis;
  Json json;         // kansoku.diagnosis/3
  Json view;         // kansoku.view/2
  std::string text;  // for a terminal
};

/// Reads `paths` together and diagnoses them: recordings of ours or other Perfetto traces, a file a
/// host, whose clocks are aligned; traces that other profilers wrote, a file a rank; or the Flight
/// Recorder dumps of a hung job. A folder stands for the files in it that are one of these, by
/// name. kCorrupt names file and damage, kUnsupported a mixture. Prints progress to standard error
/// when it takes longer than two seconds. `baseline` (may be empty): a file to compare with, see
/// diagnose/baseline.h. `options`: see sources.h.
[[nodiscard]] Result<Analysis> analyse(const std::vector<std::string>& paths, std::uint64_t seed,
                                       const std::string& baseline = {},
                                       const SourceOptions& options = {});

/// Writes a healthy analysis as a baseline for later runs (mode 0600).
[[nodiscard]] Result<void> write_baseline(const Analysis& analysis, const std::string& path);

/// Writes the self-contained HTML report (mode 0600).
[[nodiscard]] Result<void> write_report(const Analysis& analysis, const std::string& path);

}  // namespace kansoku::cli
