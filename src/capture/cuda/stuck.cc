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

namespace {

bool is_unfinished(const StreamInfo& stream, std::uint64_t now_ns) {
  return stream.waiting_since_ns != 0 && stream.waiting_since_ns < now_ns;
}

/// It cannot have begun before the one in front of it was complete.
double seconds_of(const StreamInfo& stream, std::uint64_t now_ns) {
  const std::uint64_t since = std::max(stream.waiting_since_ns, std::min(stream.done_ns, now_ns));
  return 1e-9 * static_cast<double>(now_ns - since);
}

bool waits_for_another(const Stuck& one) {
  return std::any_of(one.suspects.begin(), one.suspects.end(),
                     [](const Suspect& suspect) { return suspect.what == WIRE_CUDA_EVENT; });
}

std::vector<Suspect> suspects_of(const StreamInfo& stream) {
  if (stream.is_begun) return {{stream.what, stream.kernel}};
  std::vector<Suspect> out;
  for (const std::uint32_t word : stream.suspects)
    out.push_back({word >> 16, word & 0xffff});
  return out;
}

/// The longest deadline of any of them; nothing if one has no past.
std::optional<double> deadline_of(const std::vector<Suspect>& suspects,
                                  const HistoryOf& history_of) {
  double out = kStuckFloorS;
  for (const Suspect& suspect : suspects) {
    if (suspect.what == WIRE_CUDA_EVENT) continue;  // takes no time of its own
    const auto history = history_of(suspect.what, suspect.kernel);
    if (!history || history->count < kHistoryLeast) return std::nullopt;
    out = std::max(out, kStuckTimesP99 * 1e-9 * history->p99_ns);
  }
  return out;
}

}  // namespace

std::vector<Stuck> find_stuck(const std::vector<StreamInfo>& all, std::uint64_t now_ns,
                              const HistoryOf& history_of, std::uint64_t waiting_since_ns) {
  std::vector<Stuck> out;
  std::vector<StreamInfo> streams = all;
  for (StreamInfo& stream : streams)
    if (stream.waiting_since_ns == 0 && !stream.suspects.empty())
      stream.waiting_since_ns = waiting_since_ns;
  const auto unfinished = std::count_if(streams.begin(), streams.end(), [&](const auto& stream) {
    return is_unfinished(stream, now_ns);
  });
  const auto runs_one = [&](std::uint32_t context) {
    return std::any_of(streams.begin(), streams.end(), [&](const auto& stream) {
      return stream.context == context && is_unfinished(stream, now_ns) && stream.is_begun &&
             seconds_of(stream, now_ns) >= kStuckFloorS;
    });
  };
  for (const StreamInfo& stream : streams) {
    if (!is_unfinished(stream, now_ns)) continue;
    Stuck one{StuckKind::kStuck,          stream,
              seconds_of(stream, now_ns), 0,
              suspects_of(stream),        stream.is_begun ? 0 : stream.suspects_unknown};
    if (one.seconds < kStuckFloorS) continue;
    if (!stream.is_begun &&
        (runs_one(stream.context) || (unfinished > 1 && waits_for_another(one)))) {
      one.kind = StuckKind::kBehind;
      out.push_back(std::move(one));
      continue;
    }
    const auto deadline = one.suspects.empty() || one.forgotten > 0
                              ? std::nullopt
                              : deadline_of(one.suspects, history_of);
    one.deadline_s = deadline.value_or(kStuckFloorS);
    if (!deadline) one.kind = StuckKind::kUnknown;
    if (one.seconds >= one.deadline_s) out.push_back(std::move(one));
  }
  std::stable_sort(out.begin(), out.end(), [](const Stuck& a, const Stuck& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.seconds > b.seconds;
  });
  return out;
}

}  // namespace kansoku::capture::cuda
