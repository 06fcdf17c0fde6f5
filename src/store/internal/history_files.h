// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace kansoku::store::internal {

/// One file of windows.
struct Segment {
  std::int64_t begin_ns{0};  // of its first window, from its name
  std::string path;
  std::uint64_t bytes{0};  // with its log
};

/// The names, sizes and seals of a history's files. DuckDB puts a log beside a file, `path`.wal.
/// We put a seal, `path`.seal: the checksum of the file after it was closed in order, or "open N"
/// while it is written, N runs having ended meanwhile without closing it. DuckDB checks its blocks
/// too, but some damage ends the process that looks (measured with 1.5.6), and detection with it.
class HistoryFiles {
 public:
  explicit HistoryFiles(std::string folder) : folder_(std::move(folder)) {}

  [[nodiscard]] std::string incidents_path() const { return folder_ + "/incidents.duckdb"; }
  [[nodiscard]] std::string segment_path(std::int64_t begin_ns) const;
  /// By begin. Files of other names are none.
  [[nodiscard]] std::vector<Segment> segments() const;
  /// Damaged files, set aside earlier, oldest name first.
  [[nodiscard]] std::vector<std::string> damaged() const;
  /// Bytes of all these files.
  [[nodiscard]] std::uint64_t bytes() const;

  /// Renames a damaged file and its log to the first free name of PATH.damaged, PATH.damaged2, ...
  [[nodiscard]] static Result<std::string> set_aside(const std::string& path);
  static void remove(const std::string& path);
  /// kCorrupt if the file is not as it was sealed, or ended kOpenMax runs that had it open. Without
  /// a seal, or with DuckDB's log, it is DuckDB that finds out. Reads the whole file.
  [[nodiscard]] static Result<void> check(const std::string& path);
  /// Before a file is written: breaks its seal.
  [[nodiscard]] static Result<void> begin_writing(const std::string& path);
  /// After it was closed; `is_whole`: without an error.
  [[nodiscard]] static Result<void> end_writing(const std::string& path, bool is_whole);
  /// With its log; 0 if it is not there.
  [[nodiscard]] static std::uint64_t file_bytes(const std::string& path);

 private:
  [[nodiscard]] std::vector<std::string> names() const;
  std::string folder_;
};

}  // namespace kansoku::store::internal
