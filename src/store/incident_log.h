// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "trace/incident.h"

namespace kansoku::store {

STAT(incident_log_bad_lines, kDataLoss, kImport,
     "unreadable lines of the incident log; the disk was full or somebody edited the file");

/// Filter of incidents; empty members are not asked about.
struct IncidentFilter {
  std::int64_t since_ns{0};          // those that ended at or after it, or are open
  std::int64_t until_ns{INT64_MAX};  // those that began before it
  std::string job;
  std::optional<trace::IncidentKind> kind;
  bool only_open{false};
  std::size_t count_max{1000};  // the latest ones
};
/// True if the filter, its count aside, lets the incident through.
[[nodiscard]] bool matches(const IncidentFilter& filter, const trace::IncidentRecord& incident);

/// Incidents as a file of JSON lines, one line for each state of an incident: the last one of an id
/// holds, with the last label that any of them had. At `bytes_max` / 2 the file becomes `path`.1
/// and a new one begins, so at most `bytes_max` lie on the disk. Mode 0600. One writer; not shared
/// between threads.
class IncidentLog {
 public:
  static constexpr std::size_t kLineBytesMax = std::size_t{256} * 1024;
  static constexpr std::uint64_t kBytesMin = std::uint64_t{64} * 1024;

  struct Options {
    std::uint64_t bytes_max{16U << 20U};  // both files together; at least kBytesMin
    bool create{true};                    // false: kNotFound if there is no log
  };
  /// Opens or creates the file. kPermission, kNotFound: it cannot be.
  [[nodiscard]] static Result<IncidentLog> open(std::string path, Options options);

  /// Appends one line with one write, after ending a line that was cut off. A failed append leaves
  /// the file as it was, and the next one tries again. May block on the disk.
  [[nodiscard]] Result<void> put(const trace::IncidentRecord& incident);
  /// As put, with another label. kNotFound if the id is not in the log.
  [[nodiscard]] Result<void> label(std::string_view id, trace::IncidentLabel label);

  struct Page {
    std::vector<trace::IncidentRecord> incidents;  // by begin, then id
    std::uint64_t bad_lines{0};
  };
  [[nodiscard]] Result<Page> incidents(const IncidentFilter& filter = {}) const;
  /// Number of puts that failed since open.
  [[nodiscard]] std::uint64_t failed_count() const { return failed_count_; }

  /// The incidents in a log's untrusted text, the last state of each; lines that hold none are
  /// counted. Never fails.
  [[nodiscard]] static Page parse(std::string_view untrusted);

 private:
  IncidentLog(std::string path, Options options) : path_(std::move(path)), options_(options) {}
  [[nodiscard]] Result<void> append(const std::string& line);

  std::string path_;
  Options options_;
  std::uint64_t failed_count_{0};
};

}  // namespace kansoku::store
