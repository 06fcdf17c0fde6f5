// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulate_files.h"

#include <fmt/format.h>

#include "cli/simulate/simulate_recording.h"
#include "sys/fd.h"
#include "trace/import/format.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{2} << 30, kTextBytesMax = std::size_t{4} << 30;

}  // namespace

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

Result<std::string> read_text(const std::string& path) {
  TRY(const std::string bytes, sys::read_file(path, kFileBytesMax));
  auto text = trace::import::inflated(as_bytes(bytes), kTextBytesMax);
  if (!text) return Error{text.error().code, "read " + path + ": " + text.error().what};
  return text;
}

Result<Json> read_json(const std::string& path) {
  TRY(const std::string text, read_text(path));
  auto json = Json::parse(text);
  if (!json) return Error{json.error().code, path + ": " + json.error().what, json.error().hint};
  return json;
}

Result<std::string> FileLoader::text(const std::string& path) const {
  if (!path.empty() && path.front() != '/' && !beside_.empty()) {
    auto near = read_text(beside_ + path);
    if (near || near.error().code != Code::kNotFound) return near;
  }
  return read_text(path);
}

Result<simulate::Workload> FileLoader::workload(const std::string& path) {
  if (const auto found = read_.find(path); found != read_.end()) return found->second;
  TRY(const std::string text, this->text(path));
  const auto format = format_ ? format_ : simulate::import::detect_format(text);
  if (!format && is_recording(text)) {
    TRY(auto job, read_recorded_job(as_bytes(text), path));
    return read_.emplace(path, std::move(job.workload)).first->second;
  }
  if (!format)
    return Error{Code::kUnsupported, path + ": no known format of traces",
                 "docs/formats/workload.md lists the formats; --format forces one"};
  simulate::import::ImportOptions options;
  options.skip_bad_rows = skip_bad_rows_;
  TRY(auto read, simulate::import::import_workload(*format, text, path, options));
  if (read.bad_rows > 0) {
    fmt::print(stderr, "kansoku: {}: {} malformed rows left out\n", path, read.bad_rows);
    for (const std::string& note : read.bad_row_notes)
      fmt::print(stderr, "  {}\n", note);
  }
  return read_.emplace(path, std::move(read)).first->second;
}

Result<std::vector<simulate::NodeSpec>> FileLoader::nodes(const std::string& path) {
  TRY(const std::string text, this->text(path));
  simulate::import::ImportOptions options;
  options.skip_bad_rows = skip_bad_rows_;
  return simulate::import::import_nodes(text, path, options);
}

Result<Json> FileLoader::json(const std::string& path) {
  TRY(const std::string text, this->text(path));
  auto json = Json::parse(text);
  if (!json) return Error{json.error().code, path + ": " + json.error().what, json.error().hint};
  return json;
}

}  // namespace kansoku::cli
