// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kansoku::trace::import {

class SqliteRows;

/// A SQLite database in memory that somebody else wrote, open for reading whole tables and nothing
/// else: no file is opened, no journal or lock made, and no view, trigger, function or virtual
/// table of the file is run. Work is bounded by the size of the image: pages that refer to each
/// other in circles end in kLimit. Single-threaded; borrows the bytes.
class SqliteImage {
 public:
  struct Limits {
    std::uint64_t row_bytes_max{std::uint64_t{1} << 20};  // a longer row is kLimit
  };

  /// `tables` are the only ones that may be read; the texts it refers to must outlive the image.
  /// kCorrupt: no database. kUnsupported: one with a write-ahead log.
  [[nodiscard]] static Result<SqliteImage> open(ByteSpan untrusted,
                                                std::span<const std::string_view> tables,
                                                const Limits& limits);
  ~SqliteImage();
  SqliteImage(SqliteImage&&) noexcept;
  SqliteImage& operator=(SqliteImage&&) noexcept;

  /// The columns of a table in their order, or nothing if there is no such table. kUnsupported if
  /// the name is that of a view or a virtual table.
  [[nodiscard]] Result<std::optional<std::vector<std::string>>> columns_of(std::string_view table);
  /// The rows of a table in the order of its pages, without help of an index. An empty column name
  /// reads as NULL. `table` and `columns` are written into SQL: names that the caller's source
  /// knows, never ones of the file. The image must outlive the rows.
  [[nodiscard]] Result<SqliteRows> rows_of(std::string_view table,
                                           std::span<const std::string_view> columns);

 private:
  friend class SqliteRows;
  struct State;
  explicit SqliteImage(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A walk over the rows of one table. Columns count from 0 in the order asked for. Single-threaded.
class SqliteRows {
 public:
  ~SqliteRows();
  SqliteRows(SqliteRows&&) noexcept;
  SqliteRows& operator=(SqliteRows&&) noexcept;

  /// Steps to the next row; false at the end. kCorrupt, kLimit: the rows cannot be read further.
  [[nodiscard]] Result<bool> next();
  [[nodiscard]] bool is_null(int column) const;
  /// The value if it is of that type. Nothing for NULL, and for another type, which is counted.
  [[nodiscard]] std::optional<std::int64_t> integer(int column);
  /// As above. The view lives until the next call of next() or text(). Any bytes but NUL bytes at
  /// the end: it need not be UTF-8.
  [[nodiscard]] std::optional<std::string_view> text(int column);
  /// Values so far that were of another type than asked for.
  [[nodiscard]] std::uint64_t odd_count() const { return odd_count_; }

 private:
  friend class SqliteImage;
  SqliteRows(SqliteImage::State& image, sqlite3_stmt* statement)
      : image_(&image), statement_(statement) {}
  SqliteImage::State* image_;
  sqlite3_stmt* statement_;
  std::uint64_t odd_count_{0};
};

}  // namespace kansoku::trace::import
