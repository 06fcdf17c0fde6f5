// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/stat.h"

namespace kansoku::trace {

using StringId = Id<struct StringTag>;  // index into a StringPool; 0 is the empty string
using TrackId = Id<struct TrackTag>;    // index into Trace::tracks
using FrameId = Id<struct FrameTag>;    // index into Trace::frames
using StackId = Id<struct StackTag>;    // index into Trace::stacks

inline constexpr TrackId kNoTrack{std::numeric_limits<std::uint32_t>::max()};
inline constexpr std::int64_t kOpenDuration = -1;  // a slice whose end is not in the trace
inline constexpr std::int32_t kNoRank = -1;

/// Interned strings, each kept once. Views stay valid as long as the pool. Single-threaded.
class StringPool {
 public:
  StringPool();
  StringPool(const StringPool&) = delete;
  StringPool& operator=(const StringPool&) = delete;
  StringPool(StringPool&&) noexcept = default;
  StringPool& operator=(StringPool&&) noexcept = default;

  /// The id of `text`, adding it if it is new.
  StringId intern(std::string_view text);
  /// The id of `text` if it is known; otherwise the id of the empty string.
  [[nodiscard]] StringId find(std::string_view text) const;
  [[nodiscard]] std::string_view view(StringId id) const;
  [[nodiscard]] std::size_t size() const { return strings_.size(); }

 private:
  std::deque<std::string> strings_;  // a deque: views of old strings survive growth
  std::unordered_map<std::string_view, StringId> ids_;
};

enum class TrackKind : std::uint8_t { kProcess, kThread, kCounter, kCustom };

struct Track {
  TrackKind kind{TrackKind::kCustom};
  TrackId parent{kNoTrack};
  std::int32_t pid{0};  // 0 if the track belongs to no process
  std::int32_t tid{0};  // kThread only
  StringId name{};
};

/// Category of slices and instants of what Kansoku itself does or costs.
inline constexpr std::string_view kOwnCost = "kansoku.cost";

/// Facts about an observed process. Ranks come from its environment; children of a rank carry that
/// rank too.
struct Process {
  std::int32_t pid{0};
  std::int32_t parent_pid{0};
  StringId name{};
  StringId cmdline{};
  StringId job{};   // e.g. "127.0.0.1:29511"; equal on all ranks of one job
  StringId role{};  // "rank", "worker" (a rank's data-loader worker or other child), "launcher", ""
                    // = unknown
  std::int32_t rank{kNoRank};
  std::int32_t local_rank{kNoRank};
  std::int32_t world_size{kNoRank};
  /// Share of the events of its file that an importer could not read: 0 .. 1.
  double unreadable_share{0};
};

/// A set of ranks that communicate with each other, as an importer found it described. The same
/// group may stand here once for each rank that described it.
struct ProcessGroup {
  StringId name{};
  StringId description{};
  std::vector<std::int32_t> ranks;  // empty: unknown
};

/// One argument of a slice or instant.
struct ArgValue {
  enum class Kind : std::uint8_t { kInt, kUint, kDouble, kString };
  Kind kind{Kind::kInt};
  StringId key{};
  union {
    std::int64_t i64;
    std::uint64_t u64;
    double f64;
    StringId text;
  };
  ArgValue() : i64(0) {}
};

/// Slices in file order; each column has one entry a slice. Times are CLOCK_BOOTTIME nanoseconds.
struct SliceTable {
  std::vector<std::int64_t> start_ns,
      duration_ns;  // duration kOpenDuration: never ended in this trace
  std::vector<TrackId> track;
  std::vector<StringId> name, category;
  std::vector<std::uint32_t> arg_begin, arg_count;  // into Trace::args
  [[nodiscard]] std::size_t size() const { return start_ns.size(); }
};

struct InstantTable {
  std::vector<std::int64_t> time_ns;
  std::vector<TrackId> track;
  std::vector<StringId> name, category;
  std::vector<std::uint32_t> arg_begin, arg_count;
  [[nodiscard]] std::size_t size() const { return time_ns.size(); }
};

struct CounterTable {
  std::vector<std::int64_t> time_ns;
  std::vector<TrackId> track;
  std::vector<double> value;
  [[nodiscard]] std::size_t size() const { return time_ns.size(); }
};

/// State of a thread when its stack was sampled.
enum class SampleState : std::uint8_t { kUnknown, kRunning, kSleeping, kDisk, kStopped };

struct SampleTable {
  std::vector<std::int64_t> time_ns;
  std::vector<std::int32_t> pid, tid;
  std::vector<StackId> stack;
  std::vector<SampleState> state;
  std::vector<std::uint8_t> holds_gil;  // 1 if this thread held the interpreter lock
  std::vector<std::uint8_t> is_native;  // 1: native frames, caught on a processor; 0: Python frames
  [[nodiscard]] std::size_t size() const { return time_ns.size(); }
};

/// Scheduler switches in which an observed thread takes part. `prev_state` is the kernel's task
/// state: 0 = still runnable (preempted), 1 = interruptible sleep, 2 = uninterruptible (disk)
/// sleep, others as in sched.h.
struct SwitchTable {
  std::vector<std::int64_t> time_ns;
  std::vector<std::uint32_t> cpu;
  std::vector<std::int32_t> prev_tid, next_tid;
  std::vector<std::uint32_t> prev_state;
  [[nodiscard]] std::size_t size() const { return time_ns.size(); }
};

/// Wake-ups of observed threads: from here until it is switched in, the thread waits for a
/// processor.
struct WakeTable {
  std::vector<std::int64_t> time_ns;
  std::vector<std::int32_t> tid, waker_tid;
  [[nodiscard]] std::size_t size() const { return time_ns.size(); }
};

/// Ends of flow arrows: all slices with one `id` are linked, in time order.
struct FlowTable {
  std::vector<std::uint64_t> id;
  std::vector<std::uint32_t> slice;  // index into Trace::slices
  [[nodiscard]] std::size_t size() const { return id.size(); }
};

struct Frame {
  StringId function{};
  StringId file{};
  std::uint32_t line{0};  // 0 = unknown
  friend auto operator<=>(const Frame&, const Frame&) = default;
};

/// Call stacks, outermost frame first, stored end to end.
struct StackTable {
  std::vector<std::uint32_t>
      begin;  // begin[i] .. begin[i + 1]; one entry more than there are stacks
  std::vector<FrameId> frames;
  [[nodiscard]] std::size_t size() const { return begin.empty() ? 0 : begin.size() - 1; }
  [[nodiscard]] std::span<const FrameId> at(StackId id) const;
};

/// A loss counter as it stood at the end of the recording.
struct Loss {
  std::string name;
  std::uint64_t count{0};
  Severity severity{Severity::kDataLoss};
  std::string advice;
};

/// A whole trace in columns. Plain data: filled by read_trace() or by a test; readers take it by
/// const reference.
struct Trace {
  StringPool strings;
  std::vector<Track> tracks;
  std::vector<Process> processes;  // in order of first appearance
  std::vector<ProcessGroup> groups;
  SliceTable slices;
  InstantTable instants;
  CounterTable counters;
  SampleTable samples;
  SwitchTable switches;
  WakeTable wakes;
  FlowTable flows;
  std::vector<ArgValue> args;
  std::vector<Frame> frames;
  StackTable stacks;
  std::map<std::string, Loss> losses;  // by name
  std::map<std::string, std::string>
      metadata;  // "kansoku.version", "kansoku.attach", "kansoku.probes", ...
  std::int64_t begin_ns{0}, end_ns{0};  // first and last event time; both 0 if there is no event

  [[nodiscard]] std::string_view str(StringId id) const { return strings.view(id); }
  /// The argument `key` of the slice, or null. The pointer lives as long as `args` is unchanged.
  [[nodiscard]] const ArgValue* slice_arg(std::size_t slice, StringId key) const;
  /// True if any loss of severity kDataLoss or worse was counted.
  [[nodiscard]] bool is_lossy() const;
};

/// The process of a track, also of one that only stands below a process's track; 0 if there is
/// none.
[[nodiscard]] std::int32_t process_of_track(const Trace& trace, TrackId id);

/// Sets begin_ns and end_ns from the times of all rows; leaves them if there is none.
void measure_window(Trace& trace);

}  // namespace kansoku::trace
