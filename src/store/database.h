// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku::store {

/// Where libduckdb.so is looked for: at $KANSOKU_DUCKDB alone if that is set; else beside the
/// program (../lib/kansoku), in the source tree that the program was built in (build/npm, where
/// `make deps-store` puts it, and node_modules), and in ~/.local/share/kansoku. Never in the
/// working folder: what lies there may be a stranger's, and the program often runs as root.
[[nodiscard]] std::vector<std::string> library_places();

/// Rows of a query as text; no value is SQL's NULL.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::optional<std::string>>> rows;
};

/// The text as an SQL literal, with its quotes.
[[nodiscard]] std::string sql_text(std::string_view text);

/// A database in memory that reads and writes files. It loads no extensions and asks no network.
/// Move-only; one thread at a time. DuckDB works with threads of its own meanwhile.
class Database {
 public:
  static constexpr std::uint64_t kRowsMax = 1'000'000;

  /// kUnavailable, with a hint how to install it, if there is no libduckdb.so at `places`.
  [[nodiscard]] static Result<Database> open(
      const std::vector<std::string>& places = library_places());
  Database(Database&& other) noexcept;
  Database& operator=(Database&& other) noexcept;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  /// DuckDB's version, e.g. "v1.5.6".
  [[nodiscard]] std::string version() const;
  /// Runs one statement. kCorrupt with DuckDB's own words if it fails or holds a zero byte, kLimit
  /// above kRowsMax rows. May block; not for SQL from strangers, who could read any file.
  [[nodiscard]] Result<Table> query(const std::string& sql);

 private:
  struct Impl;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::store
