// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/feature_log.h"

#include <fmt/format.h>
#include <unistd.h>

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

/// Up to `bytes` of a regular file; "" if there is none, or a pipe.
std::string begin_of(const std::string& path, std::size_t bytes) {
  const auto fd = sys::Fd::open_regular(path);
  if (!fd) return {};
  std::string out(bytes, '\0');
  const ssize_t got = ::pread(fd->raw(), out.data(), bytes, 0);
  out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return out;
}

}  // namespace

Result<FeatureLog> FeatureLog::open(const std::string& path) {
  std::string header = "time_s,job,rank,pid";
  for (const detect::Feature& feature : detect::known_features())
    header += fmt::format(",{}", feature.name);
  header += '\n';
  const std::string begin = begin_of(path, header.size());
  if (!begin.empty() && begin != header) {
    return Error{Code::kUnsupported, fmt::format("append to {}: it has other columns", path),
                 "name another file: this one is no feature table, or another version's"};
  }
  TRY(auto sink, sys::FileSink::create(path, {.append = true}));
  if (begin.empty()) TRY_VOID(sink->append(as_bytes(header)));
  return FeatureLog(std::move(sink));
}

Result<void> FeatureLog::append(std::int64_t wall_ns, const std::vector<FeatureRow>& rows) {
  std::string text;
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
