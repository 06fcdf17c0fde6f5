// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "capture/cuda/channel.h"
#include "capture/cuda/thresholds.h"

namespace kansoku::capture::cuda {

/// How long operations of one kind took so far, in ns.
struct History {
  std::uint64_t count{0};
  double p99_ns{0};
  /// The size of the largest of them (as Suspect has it); a larger one has no history.
  std::uint32_t largest{UINT32_MAX};
};
/// In place of a class: the longest history that any operation of the process has that may still
/// run.
inline constexpr std::uint32_t kAnyOperation = 0;
/// By enum wire_cuda_class, and of a kernel or a graph by its index; nothing: no history.
using HistoryOf = std::function<std::optional<History>(std::uint32_t what, std::uint32_t kernel)>;

enum class StuckKind : std::uint8_t {
  kStuck,    // it runs longer than its deadline, or one of several does
  kUnknown,  // it runs longer than the floor, and nothing is known of such operations
  kBehind,   // it waits longer than the floor for work before it, here or on another stream
};
[[nodiscard]] std::string_view stuck_kind_name(StuckKind kind);  // "stuck", "unknown", "behind"

/// One operation of a stream, by the entry in its list of recent ones.
struct Suspect {
  std::uint32_t what{0};
  std::uint32_t kernel{0};  // index of the kernel, or of the graph
  std::uint32_t size{0};    // power of two of its threads or bytes
};
[[nodiscard]] Suspect suspect_of(std::uint32_t recent_word);

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

/// Progress of a process of a job, for the processes that wait for it.
enum class RankAt : std::uint8_t {
  kNoWork,      // all that it handed over is complete
  kCollective,  // its oldest operation waits for the other ranks
  kOperation,   // it has not come to one: another operation runs
  kUnclear,     // one of several, some of which are collectives
};
[[nodiscard]] std::string_view rank_at_name(RankAt at);  // "no_work", "collective", ...
using IsCollective = std::function<bool(const Suspect&)>;
[[nodiscard]] RankAt rank_at(const std::vector<StreamInfo>& streams, std::uint64_t now_ns,
                             const IsCollective& is_collective, std::uint64_t waiting_since_ns = 0);

/// Collectives that streams have not completed yet, as far as their lists reach.
[[nodiscard]] std::uint64_t pending_collectives(const std::vector<StreamInfo>& streams,
                                                const IsCollective& is_collective);

struct RankLook {
  RankAt at{RankAt::kNoWork};
  bool is_gone{false}, is_stopped{false};
  std::uint64_t handed_over{0};  // collectives, since its library was switched on
  std::uint64_t pending{0};      // not complete among them
};
/// Which of the ranks the others wait for, as indices: those that are gone or stopped, and those
/// that are not in a collective while another one is; if there is none, those of which that is
/// unclear. If all are in one, those that handed over fewer, provided that all completed equally
/// many: only then were they counted from one moment on.
[[nodiscard]] std::vector<std::size_t> find_missing(const std::vector<RankLook>& ranks);

}  // namespace kansoku::capture::cuda
