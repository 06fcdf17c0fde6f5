// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "common/json.h"
#include "infer/figures.h"
#include "infer/findings.h"

namespace kansoku::infer {

/// Peak rates of the machine, measured (infer/peaks.h).
struct Peaks {
  double bytes_per_second{0}, flops{0};
  std::uint32_t threads{1};
};

struct ReportOptions {
  std::size_t rows{12};          // of a table
  std::optional<Peaks> peaks{};  // nothing: no roofline
};

/// Schema kansoku.llm.report/2 (docs/formats/llm.md).
[[nodiscard]] Json to_json(const Report& report, const ReportOptions& options,
                           const Verdict& verdict = {});
/// Data that a page draws beside the report, schema kansoku.llm.view/1: micro-batches and cells in
/// use over time, the graph. `report` is that of `run`.
[[nodiscard]] Json view_json(const Run& run, const Report& report);
/// For people.
[[nodiscard]] std::string to_text(const Report& report, const ReportOptions& options,
                                  const Verdict& verdict = {});

/// Findings and changes from the other recording, without the figures.
[[nodiscard]] std::string comparison_text(const Verdict& verdict, const ReportOptions& options);
/// A few lines for a live screen: speed by `now`, operators and nodes by `closer`, the last report
/// that had some, which is `age_seconds` old.
[[nodiscard]] std::string live_text(const Report& now, const Report& closer, double age_seconds,
                                    const ReportOptions& options);

}  // namespace kansoku::infer
