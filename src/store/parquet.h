// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "store/database.h"

namespace kansoku::store {

/// A column of a CSV file. `type`: DuckDB's name of it, e.g. "DOUBLE"; never text from outside.
struct Column {
  std::string_view name, type;
};

/// Converts a CSV file (RFC 4180 with a header line, UTF-8) to a Parquet file of mode 0600,
/// replacing an old one in one step; rows keep their order. `columns` are those of the header, in
/// order; empty: types are guessed from all rows. Paths may hold any bytes: SQL never sees them.
/// kCorrupt has DuckDB's complaint; files as in sys/fd.h. May block. Memory: DuckDB's.
[[nodiscard]] Result<void> csv_to_parquet(Database& database, const std::string& csv_path,
                                          const std::string& parquet_path,
                                          std::span<const Column> columns = {});

/// The same in a database of its own; kUnavailable without DuckDB.
[[nodiscard]] Result<void> csv_to_parquet(const std::string& csv_path,
                                          const std::string& parquet_path,
                                          std::span<const Column> columns = {});

/// The rows of a Parquet file as CSV with a header line, in their order. kCorrupt has DuckDB's
/// complaint, kLimit above 4 GiB of text, kUnavailable without DuckDB. May block.
[[nodiscard]] Result<std::string> parquet_to_csv(Database& database,
                                                 const std::string& parquet_path);
[[nodiscard]] Result<std::string> parquet_to_csv(const std::string& parquet_path);

}  // namespace kansoku::store
