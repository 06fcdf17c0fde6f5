// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "store/database.h"
#include "store/incident_log.h"
#include "trace/incident.h"

namespace kansoku::store {

STAT(
    history_dropped_windows, kDataLoss, kCapture,
    "windows were not kept: the history could not be written; free disk space or check its folder");
STAT(history_dropped_incidents, kDataLoss, kCapture,
     "incidents were not kept: the history could not be written; free disk space");
STAT(history_failed_writes, kNotice, kCapture,
     "writing the history failed and is tried again later; check the disk");
STAT(history_damaged_files, kError, kCapture,
     "a damaged file of the history was set aside (*.damaged) and a new one begun");

/// Values of one process in one window; `values`: one a feature of HistoryOptions, NaN: not seen.
struct HistoryRow {
  std::int32_t rank{-1}, pid{0};
  std::span<const double> values;
};

/// One kept value.
struct HistoryValue {
  std::int64_t wall_ns{0};
  std::int32_t rank{-1}, pid{0};
  float value{0};
};

struct HistoryOptions {
  std::vector<std::string> features;  // snake_case, their columns' names; at most 256
  Nanos age{std::chrono::hours{24 * 30}};
  std::uint64_t bytes{512U << 20U};               // of all files; at least kBytesMin
  std::size_t rows_per_write{2400};               // windows gathered before they are written,
  Nanos write_interval{std::chrono::minutes{5}};  // or time since the first of them
  std::size_t rows_pending_max{20'000};           // kept in memory while writing fails
  std::uint64_t memory_bytes{24U << 20U};         // of DuckDB while it writes or reads
};

/// Windows and incidents on disk: a folder of DuckDB files. Windows go into segments
/// (windows-BEGIN.duckdb), a row each with a column a feature, and old segments are deleted whole,
/// since such files do not shrink; incidents have a file of their own. Files are open while they
/// are written or read only, so DuckDB's memory is given back and other programs can read them
/// meanwhile. Rows that cannot be written wait in memory, bounded and counted. Times are wall-clock
/// nanoseconds since 1970. Calls may block on the disk; one thread at a time.
class History {
 public:
  static constexpr std::uint64_t kBytesMin = 16U << 20U;
  static constexpr std::size_t kFeaturesMax = 256;
  static constexpr std::size_t kIncidentsPendingMax = 1000;
  static constexpr std::size_t kValuesMax = 200'000;

  /// Opens the history in a folder, made with mode 0700 if it is not there. kUnavailable, with the
  /// way to install it, if there is no libduckdb.so: keep an IncidentLog then. kPermission,
  /// kNotFound: the folder cannot be used.
  [[nodiscard]] static Result<History> open(
      const std::string& folder, HistoryOptions options,
      const std::vector<std::string>& places = library_places());
  History(History&& other) noexcept;
  History& operator=(History&& other) noexcept;
  History(const History&) = delete;
  History& operator=(const History&) = delete;
  /// Does not write: call flush() first.
  ~History();

  /// Gathers the windows of one moment, and writes them when it is time. The error is that of
  /// writing; the windows are kept for the next try all the same.
  [[nodiscard]] Result<void> add_windows(std::int64_t wall_ns, std::string_view job,
                                         std::span<const HistoryRow> rows);
  /// Writes an incident, replacing that of the same id.
  [[nodiscard]] Result<void> put_incident(const trace::IncidentRecord& incident);
  /// Writes all that was gathered.
  [[nodiscard]] Result<void> flush();

  /// By begin, then id; the latest `count_max`. Includes incidents that could not be written yet.
  [[nodiscard]] Result<std::vector<trace::IncidentRecord>> incidents(const IncidentFilter& filter);
  /// kNotFound if there is none.
  [[nodiscard]] Result<trace::IncidentRecord> incident(std::string_view id);
  /// The values of one feature in [since_ns, until_ns), by time, rank and pid; kLimit above
  /// kValuesMax. Empty for a feature that was never kept.
  [[nodiscard]] Result<std::vector<HistoryValue>> windows(std::string_view job,
                                                          std::int64_t since_ns,
                                                          std::int64_t until_ns,
                                                          std::string_view feature);

  /// Deletes rows that are older than the options' age, and the oldest windows until all files are
  /// within the options' bytes. To be called now and then, e.g. every ten minutes.
  [[nodiscard]] Result<void> retain(std::int64_t now_wall_ns);
  /// Bytes of all files of the history, those set aside included.
  [[nodiscard]] std::uint64_t size_bytes() const;

  struct Counts {
    std::uint64_t written_windows{0}, dropped_windows{0}, dropped_incidents{0};
    std::uint64_t failed_writes{0}, damaged_files{0};
    std::size_t pending_windows{0}, pending_incidents{0};
    std::string last_error;  // of the latest failed write; empty after a good one
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Impl;
  explicit History(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::store
