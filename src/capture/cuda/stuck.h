// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "capture/cuda/channel.h"

namespace kansoku::capture::cuda {

/// When an operation on the device is stuck. Rows with unit, value and what they were set on; the
/// limits of the planted and of the clean runs of docs/cuda.md.
inline constexpr double kStuckFloorS = 5;          // s; never before: compilation, evaluation
inline constexpr double kStuckTimesP99 = 10;       // times the kernel's own 99th percentile
inline constexpr std::uint64_t kHistoryLeast = 8;  // operations; fewer tell no percentile

/// What is known of an operation's kind: how long such ones took, in ns.
struct History {
  std::uint64_t count{0};
  double p99_ns{0};
};

enum class StuckKind : std::uint8_t {
  kStuck,    // it runs, longer than its deadline
  kUnknown,  // it runs longer than the floor, and nothing is known of such operations
  kBehind,   // it waits for longer than the floor for what is before it, here or on another stream
};
[[nodiscard]] std::string_view stuck_kind_name(StuckKind kind);  // "stuck", "unknown", "behind"

struct Stuck {
  StuckKind kind{StuckKind::kStuck};
  StreamInfo stream;
  double seconds{0};     // since its call
  double deadline_s{0};  // of kStuck and kUnknown
};

/// The oldest unfinished operations that are beyond their deadlines at `now_ns` (boot time), those
/// that run first, older ones first. `history_of` tells of an operation's kind by what stands in
/// the stream; nothing: no history.
[[nodiscard]] std::vector<Stuck> find_stuck(
    const std::vector<StreamInfo>& streams, std::uint64_t now_ns,
    const std::function<std::optional<History>(const StreamInfo&)>& history_of);

}  // namespace kansoku::capture::cuda
