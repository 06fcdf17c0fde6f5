// SPDX-License-Identifier: Apache-2.0
// Common part of the importers of tables: typed fields, the loop over rows, and edges between
// tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/time.h"
#include "simulate/import/import.h"
#include "simulate/import/internal/csv.h"

namespace kansoku::simulate::import {

inline constexpr std::size_t kNameBytesMax = 4096;
inline constexpr std::int64_t kGpusMax = 1'000'000;  // of one job
inline constexpr std::int64_t kInstancesMax = 1'000'000'000;
inline constexpr std::int64_t kAmountMax = 1'000'000'000'000'000'000;  // bytes, MiB, tokens, milli
inline constexpr std::size_t kRowsMax = std::size_t{1} << 31;          // indices have 32 bits

/// Fields as values. A malformed one marks the row (CsvReader::fail) and gives the least value
/// allowed, or `fallback`. Optional ones give `fallback` if the column is missing or the field
/// empty.
[[nodiscard]] std::int64_t read_integer(CsvReader& csv, std::size_t column, std::int64_t least,
                                        std::int64_t greatest);
[[nodiscard]] std::int64_t read_optional_integer(CsvReader& csv, std::size_t column,
                                                 std::int64_t least, std::int64_t greatest,
                                                 std::int64_t fallback);
/// Times 10^digits.
[[nodiscard]] std::int64_t read_optional_scaled(CsvReader& csv, std::size_t column, int digits,
                                                std::int64_t greatest, std::int64_t fallback);
/// Seconds, not negative, kTimeNsMax at most.
[[nodiscard]] Nanos read_seconds(CsvReader& csv, std::size_t column);
[[nodiscard]] Nanos read_optional_seconds(CsvReader& csv, std::size_t column, Nanos fallback);
/// Since 1970 in the source's own zone.
[[nodiscard]] Nanos read_civil(CsvReader& csv, std::size_t column);
/// A text of at most kNameBytesMax bytes of UTF-8; may be empty.
[[nodiscard]] std::string_view read_name(CsvReader& csv, std::size_t column);

/// Counts a malformed row in `into`, or gives its error back if such rows are not to be skipped.
[[nodiscard]] Result<void> leave_out(Error error, const ImportOptions& options, Workload& into);

/// Calls `take_row()` for every row. It reads the fields and adds the row unless csv.failed().
template <class TakeRow>
Result<void> for_each_row(CsvReader& csv, const ImportOptions& options, Workload& into,
                          TakeRow take_row) {
  const std::size_t rows_max = options.rows_max < kRowsMax ? options.rows_max : kRowsMax;
  for (std::size_t rows = 0;; ++rows) {
    const CsvReader::Next next = csv.next();
    if (next == CsvReader::Next::kEnd) return {};
    if (rows == rows_max)
      return csv.error_at_row(Code::kLimit, "more rows than the limit of " + std::to_string(rows));
    if (next == CsvReader::Next::kRow) take_row();
    if (csv.failed()) TRY_VOID(leave_out(csv.take_error(), options, into));
  }
}

/// Room for as many jobs as the text has lines, within reason.
void reserve_jobs(std::string_view untrusted, Workload& into);

/// A workload of which only the source is known.
[[nodiscard]] Workload workload_from(Format format, std::string_view file_name);

/// Makes the earliest submission, which is a civil time, the epoch.
void set_civil_epoch(Workload& workload);

/// Collects tasks and whom they wait for. A task's key is unique within its graph: the index of its
/// name, or a number.
class TaskLinks {
 public:
  enum class Keys : std::uint8_t { kNames, kNumbers };
  explicit TaskLinks(Keys keys) : keys_(keys) {}

  void add_task(std::uint32_t graph, std::uint32_t key, std::uint32_t job) {
    tasks_.push_back({joined(graph, key), job});
  }
  /// `place`: of the parent's name, for messages.
  void add_parent(std::uint32_t graph, std::uint32_t key, std::uint32_t child,
                  CsvReader::Place place) {
    waits_.push_back({joined(graph, key), child, place});
  }
  /// Adds the edges to `into`. A parent that is no task, or more than one, counts as a malformed
  /// row: the edge is left out. Then sorts the jobs and refuses a task that waits for itself.
  [[nodiscard]] Result<void> finish(const CsvReader& csv, const ImportOptions& options,
                                    Workload& into);

 private:
  struct Task {
    std::uint64_t key;
    std::uint32_t job;
  };
  struct Wait {
    std::uint64_t parent_key;
    std::uint32_t child;
    CsvReader::Place place;
  };
  [[nodiscard]] static std::uint64_t joined(std::uint32_t graph, std::uint32_t key) {
    return (std::uint64_t{graph} << 32U) | key;
  }

  Keys keys_;
  std::vector<Task> tasks_;
  std::vector<Wait> waits_;
};

/// Why `workload` cannot be written so that it is read back: kUnsupported, naming the job; also
/// CHECKs its indices.
[[nodiscard]] Result<void> check_exportable(const Workload& workload);
/// The epoch in nanoseconds since 1970 of its own zone. Without one: a Monday, and the hour of the
/// week that is known. kUnsupported if it is no civil time or a job lies behind 2099.
[[nodiscard]] Result<std::int64_t> epoch_for_export(const Workload& workload);

}  // namespace kansoku::simulate::import
