// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku {

/// Reads comma-separated text (RFC 4180) row by row, whatever its columns are called and however
/// many a row has. Quotes only around whole fields; lines end with LF or CRLF; blank lines are
/// skipped, and a byte order mark at the begin. Borrows the text. Not shared between threads.
class CsvRows {
 public:
  struct Limits {
    std::size_t fields_max{4096};        // of one row
    std::size_t field_bytes_max{65536};  // of one field
  };
  explicit CsvRows(std::string_view untrusted, char separator = ',')
      : CsvRows(untrusted, separator, Limits{}) {}
  CsvRows(std::string_view untrusted, char separator, const Limits& limits);

  /// Goes to the next row; false at the end. kCorrupt for misplaced quotes, kLimit beyond a limit:
  /// both name the line and end the reading.
  [[nodiscard]] Result<bool> next();
  /// The fields of the row without their quotes, valid until the next `next`.
  [[nodiscard]] const std::vector<std::string_view>& fields() const { return fields_; }
  /// Line where the row begins, from 1.
  [[nodiscard]] std::uint64_t line() const { return row_line_; }

 private:
  [[nodiscard]] Result<void> scan_quoted();
  void scan_plain();
  void skip_blank_lines();

  const char separator_;
  const Limits limits_;
  const std::string_view text_;
  std::size_t at_{0};
  std::uint64_t line_{1}, row_line_{1};
  std::vector<std::string_view> fields_;
  std::deque<std::string> plain_;  // fields that had doubled quotes
};

}  // namespace kansoku
