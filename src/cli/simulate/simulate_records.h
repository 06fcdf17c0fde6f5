// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/run.h"

namespace kansoku::cli {

/// Asked before a long simulation: kUnavailable if `path` ends in .parquet and there is no DuckDB
/// to write it.
[[nodiscard]] Result<void> check_records_path(const std::string& path);

/// Writes the records of all replications (docs/formats/records.md): as Parquet if `path` ends in
/// .parquet, else as CSV. Parquet goes through a CSV file beside it, removed in the end.
[[nodiscard]] Result<void> write_simulation_records(const std::string& path,
                                                    const simulate::Experiment& experiment,
                                                    const simulate::Replications& replications);

}  // namespace kansoku::cli
