// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"
#include "softcuda/internal/counts.h"
#include "softcuda/internal/timeline.h"

namespace kansoku::softcuda {

/// When each operation of a process ran, for who holds a recording against it:
/// $KANSOKU_SOFTGPU_OPERATIONS. Filled in by the streams' threads, never by the interface's
/// functions. Any thread.
class OperationLog {
 public:
  static constexpr std::size_t kRowsMax = std::size_t{1} << 20;  // of 72 bytes
  explicit OperationLog(std::size_t rows_max = kRowsMax) : rows_max_(rows_max) {}

  struct Which {
    Done what{Done::kKernel};
    bool is_node{false};                 // of a graph that stands at this place of the stream
    std::uint64_t stream{0}, number{0};  // of the work on its stream, from 1
    std::uint64_t bytes{0};
    std::string_view name;  // a kernel's
  };
  struct Times {
    BootTime begin{}, end{};
  };
  /// A row for an operation that begins; nothing if the log is full, which is counted.
  std::optional<std::size_t> add(const Which& which);
  /// It ended without an error, on the wall clock.
  void ran(std::size_t row, const Times& host, const Times& device);
  /// It, or a part of it, has its place in virtual time.
  void placed(std::size_t row, const Span& device);
  /// "op WHAT STREAM NUMBER READY BEGIN END HOST_BEGIN HOST_END BYTES NAME" for each that ended,
  /// by stream and number; "node" instead of "op" for nodes of a graph, behind it. "dropped N" and
  /// "unfinished N" at the end if there are any.
  [[nodiscard]] std::string text() const;

 private:
  struct Row {
    std::uint64_t stream{0}, number{0}, bytes{0};
    Span device;
    std::int64_t host_begin_ns{0}, host_end_ns{0};
    std::uint32_t name{0};
    Done what{Done::kKernel};
    bool is_node{false}, has_ended{false};
  };

  const std::size_t rows_max_;
  mutable std::mutex mutex_;
  std::vector<Row> rows_;                                    // guarded by mutex_
  std::vector<std::string> names_{"-"};                      // guarded by mutex_
  std::map<std::string, std::uint32_t, std::less<>> known_;  // guarded by mutex_
  std::uint64_t dropped_{0};                                 // guarded by mutex_
};

/// Null unless the process keeps one; its end writes the file.
[[nodiscard]] OperationLog* process_log();

}  // namespace kansoku::softcuda
