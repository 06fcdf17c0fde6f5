// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "common/json.h"
#include "infer/figures.h"

namespace kansoku::infer {

/// What the machine can do, measured (infer/peaks.h).
struct Peaks {
  double bytes_per_second{0}, flops{0};
  std::uint32_t threads{1};
};

struct ReportOptions {
  std::size_t rows{12};          // of a table
  std::optional<Peaks> peaks{};  // nothing: no roofline
};

/// Schema kansoku.llm.report/1 (docs/formats/llm.md).
[[nodiscard]] Json to_json(const Report& report, const ReportOptions& options);
/// For people.
[[nodiscard]] std::string to_text(const Report& report, const ReportOptions& options);

}  // namespace kansoku::infer
