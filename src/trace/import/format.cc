// SPDX-License-Identifier: Apache-2.0
#include "trace/import/format.h"

#include <algorithm>
#include <string_view>

#include "trace/import/internal/inflate_stream.h"

namespace kansoku::trace::import {

namespace {

/// A Flight Recorder dump as JSON: entries with names of operations, or, without any, a version and
/// groups. A trace may have such groups, too, in its distributedInfo.
bool is_dump(std::string_view text) {
  constexpr std::size_t kLookedAt = std::size_t{64} << 10;
  const std::string_view head = text.substr(0, kLookedAt);
  const auto has = [&](std::string_view key) { return head.find(key) != std::string_view::npos; };
  if (has("\"traceEvents\"") || has("\"schemaVersion\"") || has("\"distributedInfo\""))
    return false;
  return has("\"profiling_name\"") ? has("\"entries\"")
                                   : has("\"pg_config\"") && has("\"version\"");
}

}  // namespace

std::string as_ascii(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return out;
}

ByteSpan without_byte_order_mark(ByteSpan untrusted) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return as_text(untrusted).starts_with(kMark) ? untrusted.subspan(kMark.size()) : untrusted;
}

Format format_of(ByteSpan untrusted) {
  const std::string_view text = as_text(without_byte_order_mark(untrusted));
  constexpr std::string_view kSqlite("SQLite format 3\0", 16);
  if (text.starts_with(kSqlite)) return Format::kNsight;
  if (is_gzip(untrusted)) return Format::kJson;
  if (text.starts_with("\x80") && text.size() > 1 && text[1] >= 2 && text[1] <= 5)
    return Format::kFlightRecorder;
  // A packet begins with byte 10 and its length, which may be those of a line break and a bracket.
  const std::size_t bracket = text.find_first_not_of(" \t\r\n");
  const bool has_bracket =
      bracket != std::string_view::npos && (text[bracket] == '{' || text[bracket] == '[');
  const std::size_t next = has_bracket ? text.find_first_not_of(" \t\r\n", bracket + 1) : bracket;
  const bool goes_on_as_json =
      next != std::string_view::npos &&
      (std::string_view("{[]}").find(text[next]) != std::string_view::npos ||
       (text[next] == '"' && next + 1 < text.size() && text[next + 1] >= ' '));
  if (text.starts_with('\n') && !(has_bracket && goes_on_as_json)) return Format::kPerfetto;
  if (!has_bracket) return Format::kUnknown;
  return text[bracket] == '{' && is_dump(text) ? Format::kFlightRecorder : Format::kJson;
}

Result<std::string> inflated(ByteSpan untrusted, std::size_t bytes_max) {
  TRY(auto stream, InflateStream::open(untrusted));
  std::string text;
  for (;;) {
    TRY(const std::string_view piece, stream.next());
    if (piece.empty()) return text;
    if (piece.size() > bytes_max - text.size())
      return Error{Code::kLimit, "inflate: more than " + std::to_string(bytes_max) + " bytes"};
    text.append(piece);
  }
}

}  // namespace kansoku::trace::import
