// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "diff/diff.h"
#include "diff/internal/recording.h"
#include "trace/model.h"

namespace kansoku::diff {

inline constexpr std::int64_t kNoTime = INT64_MIN;

/// The processes that a trace's ranks are made of.
struct RankTable {
  std::vector<std::int32_t> numbers;  // by index, rising
  std::map<std::int32_t, std::uint32_t> index_of_pid;
  [[nodiscard]] bool has(std::int32_t pid) const { return index_of_pid.contains(pid); }
};

/// A slice that counts.
struct Event {
  std::int64_t begin_ns{0}, end_ns{0};
  std::int64_t launch_ns{kNoTime};  // of device operations: when the host asked for it
  std::uint32_t rank{0};            // index
  std::uint32_t item{0};            // index into EventTable::items
  std::uint32_t shape{0};
  std::uint32_t track{0};
  double active_ns{0};  // without waiting for a processor
  double lane_ns{0};    // part that no inner or parallel event has
  bool on_main{false};
};

/// All events of a trace, and the items that they are of (without cells).
struct EventTable {
  RankTable ranks;
  std::vector<Item> items;
  std::vector<Event> device, host;  // each by rank, then begin
  bool device_clock_apart{false};
  std::uint64_t odd_times{0};  // slices left out because of them
};

/// Reads the slices of known categories. Every id of the trace is bounds-checked; its columns have
/// equal lengths.
[[nodiscard]] EventTable read_events(const trace::Trace& trace);

}  // namespace kansoku::diff
