// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace kansoku::cli {

/// The text of a table with a header and a row a step and rank: CSV as it is (inflated if it is
/// gzip; "-": standard input), Parquet through DuckDB, a recording (or a folder of those of one
/// job's hosts) as the times of its steps and their phases: step, rank, step_ms, input_ms and so
/// on. kUnsupported for a recording without steps, kUnavailable for Parquet without DuckDB.
[[nodiscard]] Result<std::string> read_table_text(const std::string& path);

}  // namespace kansoku::cli
