// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/feature_log.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "detect/feature.h"

namespace kansoku::agent {
namespace {

/// A job's name as a field: quoted, quotes doubled.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

Result<FeatureLog> FeatureLog::open(const std::string& path) {
  std::string header = "time_s,job,rank,pid";
  for (const detect::Feature& feature : detect::known_features())
    header += fmt::format(",{}", feature.name);
  header += '\n';
  // A file that is not there yet, or a pipe, begins with nothing.
  const std::string begin = sys::read_begin(path, header.size()).value_or("");
  const bool has_header = begin == header;
  if (!has_header && !header.starts_with(begin)) {
    return Error{
        Code::kUnsupported, fmt::format("append to {}: it has other columns", path),
        "choose another file: this one is not a feature table, or another version wrote it"};
  }
  // A row that is cut off would spoil the whole table.
  TRY(auto sink,
      sys::FileSink::create(path, {.append = true, .torn_line = sys::FileSink::TornLine::kCut}));
  if (!has_header) TRY_VOID(sink->append(as_bytes(header)));
  return FeatureLog(std::move(sink), std::move(header));
}

Result<void> FeatureLog::append(std::int64_t wall_ns, const std::vector<FeatureRow>& rows) {
  std::string text = sink_->is_empty() ? header_ : "";  // rotated by copying and cutting
  for (const FeatureRow& row : rows) {
    fmt::format_to(std::back_inserter(text), "{}.{:09},{},{},{}", wall_ns / 1'000'000'000,
                   wall_ns % 1'000'000'000, quoted(row.job), row.window.rank, row.window.pid);
    for (const double value : row.window.values) {
      if (std::isfinite(value)) {
        fmt::format_to(std::back_inserter(text), ",{:.6g}", value);
      } else {
        text += ',';
      }
    }
    text += '\n';
  }
  return sink_->append(as_bytes(text));
}

}  // namespace kansoku::agent
