// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/result.h"
#include "trace/model.h"

namespace kansoku::trace {

/// Linux gives no process or thread a greater number than this less one. In a merged trace, those
/// of host h are h times this above their own.
inline constexpr std::int32_t kPidsPerHost = std::int32_t{1} << 22;
inline constexpr std::size_t kHostsMax = 500;

[[nodiscard]] constexpr std::size_t host_of(std::int32_t pid) {
  return pid < 0 ? 0 : static_cast<std::size_t>(pid / kPidsPerHost);
}
[[nodiscard]] constexpr std::int32_t pid_on_host(std::int32_t pid) {
  return pid % kPidsPerHost;
}

/// Joins recordings of one job, one a host, to one trace. Single-threaded.
class HostMerger {
 public:
  /// Appends the recording of the next host, its times shifted by the difference of wall clock and
  /// boot clock to the first host's, where both recordings say it. Fails with kUnsupported if
  /// there are several and one has process or thread numbers that Linux does not give, with kLimit
  /// beyond kHostsMax hosts or 2^32 rows of a table; the trace is then as before.
  [[nodiscard]] Result<void> add(Trace from);

  /// Adds `shift_ns` to all times of a host, saturating. `host` is below host_count().
  void shift(std::size_t host, std::int64_t shift_ns);

  [[nodiscard]] std::size_t host_count() const { return first_rows_.size(); }
  [[nodiscard]] const Trace& trace() const { return trace_; }
  /// Hands out the trace; the merger is empty afterwards.
  [[nodiscard]] Trace take();

 private:
  struct Rows {
    std::size_t slices{0}, instants{0}, counters{0}, samples{0}, switches{0}, wakes{0};
  };
  [[nodiscard]] Rows rows() const;

  Trace trace_;
  std::vector<Rows> first_rows_;  // of each host
  std::optional<std::int64_t> first_wall_ns_;
};

}  // namespace kansoku::trace
