// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku::store {

/// Places where libduckdb.so is looked for: at $KANSOKU_DUCKDB alone if that is set; else beside
/// the program (../lib/kansoku), in the source tree that the program was built in (build/npm, where
/// `make deps-store` puts it, and node_modules), and in ~/.local/share/kansoku. Never in the
/// working folder: a file there may be a stranger's, and the program often runs as root.
[[nodiscard]] std::vector<std::string> library_places();

/// Rows of a query as text; no value is SQL's NULL.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::optional<std::string>>> rows;
};

/// The text as an SQL literal, with its quotes.
[[nodiscard]] std::string sql_text(std::string_view text);

/// One row that is being appended, cell by cell from the first column on.
class RowWriter {
 public:
  virtual void integer(std::int64_t value) = 0;
  virtual void real(float value) = 0;
  virtual void text(std::string_view value) = 0;  // UTF-8 without zero bytes
  virtual void null() = 0;

 protected:
  RowWriter() = default;
  RowWriter(const RowWriter&) = default;
  RowWriter& operator=(const RowWriter&) = default;
  ~RowWriter() = default;
};

/// A database in memory that reads and writes files, or one in a file. It loads no extensions and
/// asks no network. Move-only; one thread at a time. DuckDB works with threads of its own
/// meanwhile.
class Database {
 public:
  static constexpr std::uint64_t kRowsMax = 1'000'000;

  /// kUnavailable, with a hint how to install it, if there is no libduckdb.so at `places`.
  [[nodiscard]] static Result<Database> open(
      const std::vector<std::string>& places = library_places());

  struct FileOptions {
    std::uint64_t memory_bytes{24U << 20U};  // of DuckDB's buffers; it works with one thread
    bool is_read_only{false};
  };
  /// Opens or creates the database in a file, an absolute path. Small blocks and groups of rows
  /// keep memory low. kUnavailable if the library is missing or another process has the file open,
  /// kPermission or kNotFound if it cannot be opened, kLimit if memory does not do, kCorrupt if it
  /// holds no database that this DuckDB reads. May block.
  [[nodiscard]] static Result<Database> open_file(
      const std::string& path, const FileOptions& options,
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
  /// Appends rows to a table in one transaction: all or none. `write` writes every column of row
  /// 0, 1, ... Failures as those of query. May block.
  [[nodiscard]] Result<void> append(const std::string& table, std::size_t row_count,
                                    const std::function<void(std::size_t, RowWriter&)>& write);
  /// Closes the database and gives back the memory of the library's code (see there).
  void close_and_release() &&;

 private:
  struct Impl;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::store
