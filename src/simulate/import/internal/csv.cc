// SPDX-License-Identifier: Apache-2.0
#include "simulate/import/internal/csv.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kQuotedBytesMax = 40;

bool is_special(char c, char separator) {
  return c == separator || c == '\n' || c == '\r' || c == '"';
}

}  // namespace

std::string in_quotes(std::string_view untrusted) {
  std::string out = "'";
  for (const char c : untrusted.substr(0, kQuotedBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    }
  }
  out += untrusted.size() > kQuotedBytesMax ? "...'" : "'";
  return out;
}

CsvReader::CsvReader(std::string_view untrusted, std::string_view file_name,
                     const CsvOptions& options)
    : file_name_(file_name),
      options_(options),
      at_(untrusted.data()),
      end_(untrusted.data() + untrusted.size()),
      is_utf8_(simdjson::validate_utf8(untrusted.data(), untrusted.size())),
      row_begin_(at_) {
  if (untrusted.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ += kByteOrderMark.size();
  row_begin_ = at_;
}

bool CsvReader::is_utf8(std::string_view text) const {
  return is_utf8_ || simdjson::validate_utf8(text.data(), text.size());
}

std::optional<std::string_view> CsvReader::take_comment() {
  if (at_ == end_ || *at_ != '#') return std::nullopt;
  const char* line_end = std::find(at_, end_, '\n');
  std::string_view line(at_, static_cast<std::size_t>(line_end - at_));
  if (line.back() == '\r') line.remove_suffix(1);
  at_ = line_end == end_ ? end_ : line_end + 1;
  ++line_;
  return line;
}

Result<void> CsvReader::read_header(std::span<const CsvColumn> wanted) {
  fields_.assign(wanted.size(), Field{});
  present_.assign(wanted.size(), false);
  scratch_.assign(wanted.size(), std::string());
  begin_row();
  std::vector<Field> names;
  all_ = &names;
  const bool whole = scan_row();
  all_ = nullptr;
  if (!whole) return take_error();
  return match_header(wanted, names);
}

Result<void> CsvReader::match_header(std::span<const CsvColumn> wanted,
                                     const std::vector<Field>& names) {
  slots_.assign(names.size(), kNotWanted);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto same = [&](const CsvColumn& column) { return column.name == names[i].text; };
    const auto found = std::find_if(wanted.begin(), wanted.end(), same);
    if (found == wanted.end()) continue;
    const auto slot = static_cast<std::size_t>(found - wanted.begin());
    if (present_[slot]) {
      if (options_.first_of_duplicates) continue;
      fail_at(names[i].begin, fmt::format("column {} twice", in_quotes(found->name)));
      return take_error();
    }
    present_[slot] = true;
    slots_[i] = static_cast<std::uint32_t>(slot);
  }
  for (std::size_t slot = 0; slot < wanted.size(); ++slot) {
    if (!wanted[slot].required || present_[slot]) continue;
    fail_row(fmt::format("column {} is missing", in_quotes(wanted[slot].name)));
    return take_error();
  }
  return {};
}

void CsvReader::begin_row() {
  failed_ = false;
  row_begin_ = at_;
  row_line_ = line_;
}

/// True if the row cannot be read: blank lines stand before another row.
bool CsvReader::skip_blank_lines() {
  const char* p = at_;
  std::uint64_t lines = 0;
  while (p != end_ && (*p == '\n' || *p == '\r')) {
    if (*p == '\r' && p + 1 != end_ && p[1] != '\n') break;
    lines += *p == '\n' ? 1 : 0;
    ++p;
  }
  const bool was_blank = p != at_ && p != end_;
  if (was_blank) fail_row("blank line inside the table");
  at_ = p;
  line_ += lines;
  return was_blank;
}

CsvReader::Next CsvReader::next() {
  begin_row();
  if (at_ != end_ && (*at_ == '\n' || *at_ == '\r') && skip_blank_lines()) return Next::kBad;
  if (at_ == end_) return Next::kEnd;
  return scan_row() ? Next::kRow : Next::kBad;
}

bool CsvReader::scan_row() {
  row_ended_ = false;
  std::size_t count = 0;
  const char* first_extra = nullptr;
  Field field;
  while (!row_ended_) {
    const char* begin = at_;
    if (!scan_field(field)) {
      recover();
      return false;
    }
    if (count < slots_.size()) {
      if (slots_[count] != kNotWanted) keep(slots_[count], field);
    } else if (all_ != nullptr) {
      if (count == options_.columns_max) {
        return fail_at(begin, fmt::format("more columns than the limit of {}", count),
                       Code::kLimit);
      }
      all_->push_back(field);
    } else if (count == slots_.size()) {
      first_extra = begin;
    }
    ++count;
  }
  if (all_ == nullptr) check_field_count(count, first_extra, field.begin);
  return !failed_;
}

void CsvReader::check_field_count(std::size_t count, const char* first_extra, const char* last) {
  if (count == slots_.size()) return;
  fail_at(
      first_extra != nullptr ? first_extra : last,
      fmt::format("{} field{}, the header has {}", count, count == 1 ? "" : "s", slots_.size()));
}

bool CsvReader::scan_field(Field& field) {
  field.begin = at_;
  field.escaped = false;
  if (at_ != end_ && *at_ == '"') return scan_quoted(field);
  const char separator = options_.separator;
  const char* p = at_;
  while (p != end_ && !is_special(*p, separator))
    ++p;
  field.text = {field.begin, static_cast<std::size_t>(p - field.begin)};
  at_ = p;
  if (field.text.size() > options_.field_bytes_max) {
    return fail_at(field.begin,
                   fmt::format("field longer than the limit of {} bytes", options_.field_bytes_max),
                   Code::kLimit);
  }
  if (p != end_ && *p == '"') return fail_at(field.begin, "quote inside an unquoted field");
  return end_field();
}

/// Steps over what ends a field: a separator, the end of the line or of the text.
bool CsvReader::end_field() {
  if (at_ == end_) {
    row_ended_ = true;
    return true;
  }
  const char c = *at_;
  if (c == options_.separator) {
    ++at_;
    return true;
  }
  if (c == '\r') {
    if (at_ + 1 != end_ && at_[1] != '\n') return fail_at(at_, "carriage return inside a line");
    ++at_;
  }
  if (at_ != end_) {
    ++at_;
    ++line_;
  }
  row_ended_ = true;
  return true;
}

bool CsvReader::scan_quoted(Field& field) {
  const char* text_begin = at_ + 1;
  const char* p = text_begin;
  for (;;) {
    const auto* quote =
        static_cast<const char*>(std::memchr(p, '"', static_cast<std::size_t>(end_ - p)));
    if (quote == nullptr) return fail_at(field.begin, "quote is not closed");
    p = quote + 1;
    if (p == end_ || *p != '"') break;
    field.escaped = true;
    ++p;
  }
  field.text = {text_begin, static_cast<std::size_t>(p - 1 - text_begin)};
  if (field.text.size() > options_.field_bytes_max) {
    at_ = p;
    return fail_at(field.begin,
                   fmt::format("field longer than the limit of {} bytes", options_.field_bytes_max),
                   Code::kLimit);
  }
  line_ += static_cast<std::uint64_t>(std::count(text_begin, p, '\n'));
  at_ = p;
  if (p != end_ && (*p == '"' || !is_special(*p, options_.separator)))
    return fail_at(field.begin, "text after the closing quote");
  return end_field();
}

void CsvReader::keep(std::size_t slot, const Field& field) {
  fields_[slot] = field;
  if (!field.escaped) return;
  std::string& plain = scratch_[slot];
  plain.clear();
  for (std::size_t i = 0; i < field.text.size(); ++i) {
    plain += field.text[i];
    if (field.text[i] == '"') ++i;
  }
  fields_[slot].text = plain;
}

/// Goes behind the line in which the row broke.
void CsvReader::recover() {
  at_ = std::find(at_, end_, '\n');
  if (at_ == end_) return;
  ++at_;
  line_ = row_line_ + static_cast<std::uint64_t>(std::count(row_begin_, at_, '\n'));
}

void CsvReader::fail(std::size_t column, std::string_view what) {
  const char* place = fields_[column].begin;
  fail_at(place != nullptr ? place : row_begin_, what);
}

void CsvReader::fail_row(std::string_view what) {
  fail_at(row_begin_, what);
}

bool CsvReader::fail_at(const char* place, std::string_view what, Code code) {
  if (!failed_) {
    error_ = Error{code, fmt::format("{}: {}", text_of(place_at(place)), what)};
    failed_ = true;
  }
  return false;
}

Error CsvReader::take_error() {
  CHECK(failed_);
  failed_ = false;
  return std::move(error_);
}

Error CsvReader::error_at_row(Code code, std::string_view what) const {
  return Error{code, fmt::format("{}: {}", text_of(place_at(row_begin_)), what)};
}

CsvReader::Place CsvReader::place_of(std::size_t column) const {
  const char* begin = fields_[column].begin;
  return place_at(begin != nullptr ? begin : row_begin_);
}

CsvReader::Place CsvReader::place_at(const char* at) const {
  const char* line_begin = row_begin_;
  std::uint64_t line = row_line_;
  for (const char* p = row_begin_; p < at; ++p) {
    if (*p != '\n') continue;
    ++line;
    line_begin = p + 1;
  }
  return {line, static_cast<std::uint64_t>(at - line_begin) + 1};
}

std::string CsvReader::text_of(Place place) const {
  return fmt::format("{}:{}:{}", file_name_, place.line, place.column);
}

CsvWriter::CsvWriter(std::span<const std::string_view> header) {
  for (const std::string_view name : header)
    text(name);
  end_row();
}

void CsvWriter::separate() {
  if (!row_begins_) out_ += ',';
  row_begins_ = false;
}

void CsvWriter::text(std::string_view field) {
  separate();
  const auto is_marked = [](char c) { return is_special(c, ','); };
  if (std::none_of(field.begin(), field.end(), is_marked)) {
    out_ += field;
    return;
  }
  out_ += '"';
  for (const char c : field) {
    if (c == '"') out_ += c;
    out_ += c;
  }
  out_ += '"';
}

void CsvWriter::integer(std::int64_t value) {
  separate();
  append_decimal(out_, value, 0);
}

void CsvWriter::decimal(std::int64_t value, int digits) {
  separate();
  append_decimal(out_, value, digits);
}

void CsvWriter::end_row() {
  out_ += '\n';
  row_begins_ = true;
}

}  // namespace kansoku::simulate::import
