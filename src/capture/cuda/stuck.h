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

/// How long operations of one kind took so far, in ns.
struct History {
  std::uint64_t count{0};
  double p99_ns{0};
};
/// By enum wire_cuda_class, and of a kernel by its index; nothing: no history.
using HistoryOf = std::function<std::optional<History>(std::uint32_t what, std::uint32_t kernel)>;

enum class StuckKind : std::uint8_t {
  kStuck,    // it runs longer than its deadline, or one of several does
  kUnknown,  // it runs longer than the floor, and nothing is known of such operations
  kBehind,   // it waits longer than the floor for what is before it, here or on another stream
};
[[nodiscard]] std::string_view stuck_kind_name(StuckKind kind);  // "stuck", "unknown", "behind"

/// One operation of a stream, by what stands in its list of recent ones.
struct Suspect {
  std::uint32_t what{0}, kernel{0};
};

struct Stuck {
  StuckKind kind{StuckKind::kStuck};
  StreamInfo stream;
  double seconds{0};     // since its call, or since the last completion before it
  double deadline_s{0};  // of kStuck and kUnknown
  /// One of these: a single one if it was timed and has begun. Older ones first.
  std::vector<Suspect> suspects;
  std::uint32_t forgotten{0};  // older ones that are no longer known
};

/// Streams whose oldest unfinished operation is beyond its deadline at `now_ns` (boot time): those
/// that run first, older ones first. A stream whose suspects include a wait for another stream is
/// behind it as long as another one has unfinished work. `waiting_since_ns`: since when a thread
/// has waited for the device (0: none does); then operations that nothing is known of count, too.
[[nodiscard]] std::vector<Stuck> find_stuck(const std::vector<StreamInfo>& streams,
                                            std::uint64_t now_ns, const HistoryOf& history_of,
                                            std::uint64_t waiting_since_ns = 0);

}  // namespace kansoku::capture::cuda
