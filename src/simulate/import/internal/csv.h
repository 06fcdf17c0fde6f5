// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace kansoku::simulate::import {

/// A column that an importer reads. Columns are found by name, in any order.
struct CsvColumn {
  std::string_view name;
  bool required{false};
};

struct CsvOptions {
  char separator{','};
  bool first_of_duplicates{false};  // of columns of one name the first counts; else an error
  std::size_t field_bytes_max{std::size_t{16} << 20};
  std::size_t columns_max{4096};
};

/// Reads one table in strict RFC 4180 form: quotes only around whole fields, every row as long as
/// the header. Lines end with LF or CRLF, the last one also with the text; blank lines are allowed
/// at the end, a byte order mark at the begin. Errors say "FILE:LINE:COLUMN: what", COLUMN being
/// the byte, from 1, where the field begins. Borrows the text. Not shared between threads.
class CsvReader {
 public:
  enum class Next : std::uint8_t { kRow, kBad, kEnd };

  CsvReader(std::string_view untrusted, std::string_view file_name, const CsvOptions& options = {});

  /// Takes the first line if it begins with '#', before read_header; its text without the line end.
  [[nodiscard]] std::optional<std::string_view> take_comment();
  /// Reads the header line. `wanted` are the columns that the calls below name by their index; it
  /// must outlive the reader. Columns not wanted are skipped. kCorrupt names a missing one.
  [[nodiscard]] Result<void> read_header(std::span<const CsvColumn> wanted);
  /// Goes to the next row. After kBad, `failed()` holds and the next call goes on behind the line
  /// where the row broke.
  [[nodiscard]] Next next();

  /// True if the header has the column.
  [[nodiscard]] bool has(std::size_t column) const { return present_[column]; }
  /// The field without its quotes, until the next `next`; empty if there is no such column.
  [[nodiscard]] std::string_view text(std::size_t column) const { return fields_[column].text; }

  /// True if `text`, a part of this source, is UTF-8.
  [[nodiscard]] bool is_utf8(std::string_view text) const;

  /// Marks the row as malformed. The first reason of a row counts.
  void fail(std::size_t column, std::string_view what);
  /// The same for something that concerns the row as a whole.
  void fail_row(std::string_view what);
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] Error take_error();
  /// An error at the begin of the current row, or of the one about to be read.
  [[nodiscard]] Error error_at_row(Code code, std::string_view what) const;
  /// Begin of a field of the current row; both count from 1.
  struct Place {
    std::uint64_t line{0};
    std::uint64_t column{0};
  };
  [[nodiscard]] Place place_of(std::size_t column) const;
  /// "FILE:LINE:COLUMN".
  [[nodiscard]] std::string text_of(Place place) const;

 private:
  struct Field {
    std::string_view text;
    const char* begin{nullptr};  // in the source, quotes included; null: no such column
    bool escaped{false};         // has doubled quotes
  };

  void begin_row();
  [[nodiscard]] bool skip_blank_lines();
  [[nodiscard]] bool scan_row();
  [[nodiscard]] bool scan_field(Field& field);
  [[nodiscard]] bool scan_quoted(Field& field);
  [[nodiscard]] bool end_field();
  void keep(std::size_t slot, const Field& field);
  void check_field_count(std::size_t count, const char* first_extra, const char* last);
  void recover();
  bool fail_at(const char* place, std::string_view what, Code code = Code::kCorrupt);
  [[nodiscard]] Place place_at(const char* at) const;
  [[nodiscard]] Result<void> match_header(std::span<const CsvColumn> wanted,
                                          const std::vector<Field>& names);

  static constexpr std::uint32_t kNotWanted = std::numeric_limits<std::uint32_t>::max();

  const std::string file_name_;
  const CsvOptions options_;
  const char* at_;
  const char* end_;
  const bool is_utf8_;
  const char* row_begin_;  // first byte of the row
  std::uint64_t line_{1};  // of at_
  std::uint64_t row_line_{1};
  bool row_ended_{false};
  bool failed_{false};
  Error error_{};
  std::vector<std::uint32_t> slots_;  // column of the file -> column wanted
  std::vector<Field> fields_;         // by column wanted
  std::vector<bool> present_;
  std::vector<std::string> scratch_;  // fields without their doubled quotes
  std::vector<Field>* all_{nullptr};  // destination of the header's fields
};

/// A text as it may stand in a message: quoted, cut, without control bytes.
[[nodiscard]] std::string in_quotes(std::string_view untrusted);

/// Writes a table that CsvReader reads back.
class CsvWriter {
 public:
  explicit CsvWriter(std::span<const std::string_view> header);

  void text(std::string_view field);
  void integer(std::int64_t value);
  /// value / 10^digits, without needless zeros.
  void decimal(std::int64_t value, int digits);
  void empty() { separate(); }
  void end_row();
  /// Text that comes before the header.
  void put_first(std::string_view line) { out_.insert(0, line); }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  void separate();
  std::string out_;
  bool row_begins_{true};
};

}  // namespace kansoku::simulate::import
