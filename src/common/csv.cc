// SPDX-License-Identifier: Apache-2.0
#include "common/csv.h"

#include <fmt/format.h>

namespace kansoku {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

CsvRows::CsvRows(std::string_view untrusted, char separator, const Limits& limits)
    : separator_(separator), limits_(limits), text_(untrusted) {
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ = kByteOrderMark.size();
}

void CsvRows::skip_blank_lines() {
  while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) {
    line_ += text_[at_] == '\n' ? 1 : 0;
    ++at_;
  }
}

void CsvRows::scan_plain() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n')
    ++at_;
  std::string_view field = text_.substr(begin, at_ - begin);
  const bool ends_line = at_ == text_.size() || text_[at_] == '\n';
  if (ends_line && !field.empty() && field.back() == '\r') field.remove_suffix(1);
  fields_.push_back(field);
}

Result<void> CsvRows::scan_quoted() {
  const std::size_t begin = ++at_;
  bool is_escaped = false;
  for (;; ++at_) {
    at_ = text_.find('"', at_);
    if (at_ == std::string_view::npos)
      return Error{Code::kCorrupt, fmt::format("line {}: quote is not closed", row_line_)};
    if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') break;
    is_escaped = true;
    ++at_;
  }
  const std::string_view field = text_.substr(begin, at_ - begin);
  for (const char c : field)
    line_ += c == '\n' ? 1 : 0;
  ++at_;
  if (at_ < text_.size() && text_[at_] == '\r') ++at_;
  if (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n')
    return Error{Code::kCorrupt, fmt::format("line {}: text after a closing quote", row_line_)};
  fields_.push_back(field);
  if (!is_escaped) return {};
  std::string& plain = plain_.emplace_back();
  for (std::size_t i = 0; i < field.size(); ++i) {
    plain += field[i];
    if (field[i] == '"') ++i;
  }
  fields_.back() = plain;
  return {};
}

Result<bool> CsvRows::next() {
  fields_.clear();
  plain_.clear();
  skip_blank_lines();
  row_line_ = line_;
  if (at_ >= text_.size()) return false;
  for (;;) {
    if (fields_.size() == limits_.fields_max) {
      return Error{Code::kLimit, fmt::format("line {}: more fields than the limit of {}", row_line_,
                                             limits_.fields_max)};
    }
    if (at_ < text_.size() && text_[at_] == '"') {
      TRY_VOID(scan_quoted());
    } else {
      scan_plain();
    }
    if (fields_.back().size() > limits_.field_bytes_max) {
      return Error{Code::kLimit, fmt::format("line {}: field longer than the limit of {} bytes",
                                             row_line_, limits_.field_bytes_max)};
    }
    if (at_ >= text_.size()) return true;
    if (text_[at_++] == separator_) continue;
    ++line_;
    return true;
  }
}

}  // namespace kansoku
