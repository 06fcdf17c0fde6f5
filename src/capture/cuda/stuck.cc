// SPDX-License-Identifier: Apache-2.0
#include "capture/cuda/stuck.h"

#include <algorithm>

namespace kansoku::capture::cuda {

std::string_view stuck_kind_name(StuckKind kind) {
  switch (kind) {
    case StuckKind::kStuck:
      return "stuck";
    case StuckKind::kUnknown:
      return "unknown";
    case StuckKind::kBehind:
      return "behind";
  }
  return "";
}

std::vector<Stuck> find_stuck(
    const std::vector<StreamInfo>& streams, std::uint64_t now_ns,
    const std::function<std::optional<History>(const StreamInfo&)>& history_of) {
  std::vector<Stuck> out;
  for (const StreamInfo& stream : streams) {
    if (stream.waiting_since_ns == 0 || stream.waiting_since_ns >= now_ns) continue;
    // It cannot have begun before the one in front of it was complete.
    const std::uint64_t since = std::max(stream.waiting_since_ns, std::min(stream.done_ns, now_ns));
    const double seconds = 1e-9 * static_cast<double>(now_ns - since);
    if (seconds < kStuckFloorS) continue;
    if (!stream.is_begun) {
      out.push_back({StuckKind::kBehind, stream, seconds, 0});
      continue;
    }
    const auto history = history_of(stream);
    if (!history || history->count < kHistoryLeast) {
      out.push_back({StuckKind::kUnknown, stream, seconds, kStuckFloorS});
      continue;
    }
    const double deadline = std::max(kStuckFloorS, kStuckTimesP99 * 1e-9 * history->p99_ns);
    if (seconds >= deadline) out.push_back({StuckKind::kStuck, stream, seconds, deadline});
  }
  std::stable_sort(out.begin(), out.end(), [](const Stuck& a, const Stuck& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.seconds > b.seconds;
  });
  return out;
}

}  // namespace kansoku::capture::cuda
