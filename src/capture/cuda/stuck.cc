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
  std::vector<Suspect> out;
  for (const std::uint32_t word : stream.suspects)
    out.push_back(suspect_of(word));
  if (stream.is_begun)
    return out.empty() || out.back().what != stream.what
               ? std::vector<Suspect>{{stream.what, stream.kernel, 0}}
               : std::vector<Suspect>{out.back()};
  // A timed one that has not begun is not the one that runs: something before it is.
  if (!stream.is_mark && stream.waiting_since_ns != 0 && out.size() > 1) out.pop_back();
  return out;
}

/// The longest deadline of any of them; nothing if one has no past.
std::optional<double> deadline_of(const Stuck& one, const HistoryOf& history_of) {
  double out = kStuckFloorS;
  const auto add = [&](std::uint32_t what, std::uint32_t kernel, std::uint32_t size) {
    const auto history = history_of(what, kernel);
    if (!history || history->count < kHistoryLeast || size > history->largest) return false;
    out = std::max(out, kStuckTimesP99 * 1e-9 * history->p99_ns);
    return true;
  };
  if (one.forgotten > 0 && !add(kAnyOperation, WIRE_CUDA_NO_KERNEL, 0)) return std::nullopt;
  for (const Suspect& suspect : one.suspects)
    if (suspect.what != WIRE_CUDA_EVENT &&  // takes no time of its own
        !add(suspect.what, suspect.kernel, suspect.size))
      return std::nullopt;
  return out;
}

/// A stream of which no operation was timed counts once somebody waits for the device.
std::vector<StreamInfo> with_waits(const std::vector<StreamInfo>& all,
                                   std::uint64_t waiting_since_ns) {
  std::vector<StreamInfo> out = all;
  for (StreamInfo& stream : out) {
    if (stream.waiting_since_ns != 0 || stream.suspects.empty()) continue;
    stream.waiting_since_ns = waiting_since_ns;
    stream.is_mark = true;  // any of them may be the one
  }
  return out;
}

}  // namespace

std::vector<Stuck> find_stuck(const std::vector<StreamInfo>& all, std::uint64_t now_ns,
                              const HistoryOf& history_of, std::uint64_t waiting_since_ns) {
  std::vector<Stuck> out;
  const std::vector<StreamInfo> streams = with_waits(all, waiting_since_ns);
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
    const auto deadline =
        one.suspects.empty() && one.forgotten == 0 ? std::nullopt : deadline_of(one, history_of);
    one.deadline_s = deadline.value_or(kStuckFloorS);
    if (!deadline) one.kind = StuckKind::kUnknown;
    if (one.seconds >= one.deadline_s) out.push_back(std::move(one));
  }
  std::stable_sort(out.begin(), out.end(), [](const Stuck& a, const Stuck& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.seconds > b.seconds;
  });
  return out;
}

Suspect suspect_of(std::uint32_t word) {
  return {WIRE_CUDA_RECENT_WHAT(word), WIRE_CUDA_RECENT_INDEX(word), WIRE_CUDA_RECENT_SIZE(word)};
}

std::string_view rank_at_name(RankAt at) {
  switch (at) {
    case RankAt::kNoWork:
      return "no_work";
    case RankAt::kCollective:
      return "collective";
    case RankAt::kOperation:
      return "operation";
    case RankAt::kUnclear:
      return "unclear";
  }
  return "";
}

RankAt rank_at(const std::vector<StreamInfo>& all, std::uint64_t now_ns,
               const IsCollective& is_collective, std::uint64_t waiting_since_ns) {
  bool has_collectives = false, has_others = false, has_behind = false;
  const std::vector<StreamInfo> streams = with_waits(all, waiting_since_ns);
  const auto unfinished = std::count_if(
      streams.begin(), streams.end(), [&](const auto& one) { return is_unfinished(one, now_ns); });
  for (const StreamInfo& stream : streams) {
    if (!is_unfinished(stream, now_ns)) continue;
    std::vector<Suspect> suspects = suspects_of(stream);
    const auto is_wait = [](const Suspect& one) { return one.what == WIRE_CUDA_EVENT; };
    // It waits for another stream, which is looked at by itself.
    if (unfinished > 1 && !stream.is_begun && !suspects.empty() && is_wait(suspects.front())) {
      has_behind = true;
      continue;
    }
    std::erase_if(suspects, is_wait);
    for (const Suspect& one : suspects)
      (is_collective(one) ? has_collectives : has_others) = true;
    has_others =
        has_others || suspects.empty() || (!stream.is_begun && stream.suspects_unknown > 0);
  }
  if (has_collectives && has_others) return RankAt::kUnclear;
  if (has_collectives) return RankAt::kCollective;
  return has_others || has_behind ? RankAt::kOperation : RankAt::kNoWork;
}

std::uint64_t pending_collectives(const std::vector<StreamInfo>& streams,
                                  const IsCollective& is_collective) {
  std::uint64_t out = 0;
  for (const StreamInfo& stream : streams)
    for (const auto* const words : {&stream.suspects, &stream.behind})
      for (const std::uint32_t word : *words)
        out += is_collective(suspect_of(word)) ? 1 : 0;
  return out;
}

std::vector<std::size_t> find_missing(const std::vector<RankLook>& ranks) {
  std::vector<std::size_t> out;
  const auto is_there = [](const RankLook& rank) { return !rank.is_gone && !rank.is_stopped; };
  const bool does_any_wait = std::any_of(ranks.begin(), ranks.end(), [&](const RankLook& rank) {
    return is_there(rank) && (rank.at == RankAt::kCollective || rank.at == RankAt::kUnclear);
  });
  if (!does_any_wait) return out;
  std::uint64_t most = 0, done_least = UINT64_MAX, done_most = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankLook& rank = ranks[i];
    if (!is_there(rank) || rank.at == RankAt::kNoWork || rank.at == RankAt::kOperation)
      out.push_back(i);
    const std::uint64_t done = rank.handed_over - std::min(rank.handed_over, rank.pending);
    most = std::max(most, rank.handed_over);
    done_least = std::min(done_least, done);
    done_most = std::max(done_most, done);
  }
  // In a collective that all others are in it would be complete: it has not come to it.
  if (out.empty() && std::any_of(ranks.begin(), ranks.end(), [](const RankLook& rank) {
        return rank.at == RankAt::kCollective;
      }))
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i].at == RankAt::kUnclear) out.push_back(i);
  if (!out.empty() || done_least != done_most) return out;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].handed_over < most) out.push_back(i);
  return out;
}

}  // namespace kansoku::capture::cuda
