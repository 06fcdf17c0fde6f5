// SPDX-License-Identifier: Apache-2.0
#include "cli/output_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "sys/fd.h"
#include "trace/import/format.h"

namespace kansoku::cli {
namespace {

std::string_view file_kind_name(FileKind kind) {
  static constexpr std::array<std::string_view, 5> kNames{"an HTML page", "a recording",
                                                          "a JSON file", "a Parquet table", "text"};
  return kNames.at(static_cast<std::size_t>(kind));
}

FileKind kind_of(std::string_view head) {
  using trace::import::Format;
  const Format format = trace::import::format_of(as_bytes(head));
  const std::size_t first = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const bool is_trace = format != Format::kUnknown && format != Format::kJson;
  if (is_trace || head.starts_with("\x1f\x8b")) return FileKind::kRecording;
  if (head.starts_with("PAR1")) return FileKind::kTable;
  if (head.substr(first).starts_with("<")) return FileKind::kPage;
  if (head.substr(first).starts_with("{")) return FileKind::kJson;
  return FileKind::kText;
}

/// "kansoku.baseline" of the begin of a JSON file with `"schema": "kansoku.baseline/2"`.
std::string_view schema_of(std::string_view head) {
  const std::size_t key = head.find("\"schema\"");
  if (key == std::string_view::npos) return {};
  const std::size_t open = head.find('"', key + 8);
  if (open == std::string_view::npos) return {};
  const std::string_view value = head.substr(open + 1);
  return value.substr(0, value.find_first_of("/\""));
}

bool is_same_file(const struct stat& a, const std::string& path) {
  struct stat b {};
  return ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

Result<void> check_replaced(const std::string& path, const struct stat& info,
                            const OutputRules& rules) {
  for (const std::string& input : rules.inputs) {
    if (is_same_file(info, input))
      return Error{Code::kUnsupported, fmt::format("write {}: the command also reads it", path),
                   "choose another name"};
  }
  if (rules.force || info.st_size == 0) return {};
  const auto head = sys::read_begin(path, kFileHeadBytes);
  if (!head) return {};  // it cannot be told; writing tells why, if it fails
  const FileKind there = kind_of(*head);
  const std::string_view schema = schema_of(*head);
  const bool is_other_schema =
      there == FileKind::kJson && !rules.schema.empty() && schema != rules.schema;
  if (there == rules.kind && !is_other_schema) return {};
  return Error{Code::kUnsupported,
               fmt::format("write {}: the file exists and has another kind: {}", path,
                           is_other_schema && !schema.empty() ? schema : file_kind_name(there)),
               "choose another name or pass --force"};
}

}  // namespace

Result<void> check_output(const std::string& path, const OutputRules& rules) {
  if (path.empty()) return {};
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return Error{Code::kUnsupported,
                   fmt::format("write {}: {}", path,
                               S_ISDIR(info.st_mode) ? "is a directory" : "not a regular file")};
    TRY_VOID(check_replaced(path, info, rules));
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "./" : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  const int error = errno;
  return Error{error == EACCES || error == EROFS ? Code::kPermission : Code::kNotFound,
               fmt::format("write {}: folder {}: {}", path, folder, std::strerror(error))};
}

}  // namespace kansoku::cli
