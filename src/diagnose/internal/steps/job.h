// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "stats/intervals.h"
#include "trace/model.h"

namespace kansoku::diagnose {

using stats::Interval;
using stats::IntervalSet;

/// Kind of a slice of the trace, for the diagnosis.
enum class EventKind : std::uint8_t {
  kNone,  // nothing to us
  kInput,
  kOptimizer,
  kZeroGrad,
  kBackward,
  kPrepareForward,  // begins when the forward pass does
  kFinalize,
  kIssue,    // a collective is handed to its process group
  kExecute,  // a collective runs
};

struct Event {
  Interval time;
  EventKind kind{EventKind::kNone};
  bool on_main{false};  // on the thread that trains
  bool is_open{false};  // never ended in this trace; time.end_ns is the end of the trace
  trace::StringId name{};
};

struct CollectiveEvent {
  Interval time;
  bool is_issue{false};
  bool is_open{false};
  bool on_main{false};
  bool has_seq{false};
  bool has_pg{false};
  trace::TrackId track{};
  std::uint32_t op{0};  // index into JobData::op_names
  std::uint64_t seq{0};
  std::uint64_t pg{0};
  trace::StringId group{};      // its name, which its members share; empty: not known
  std::uint64_t group_size{0};  // 0: not known
  std::uint64_t bytes{0};
};

/// A call that sends, receives, or waits for one of these to end.
struct MessageEvent {
  enum class Kind : std::uint8_t { kSend, kReceive, kWait };
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  Interval time;
  Kind kind{Kind::kWait};
  bool is_open{false};
  bool on_main{false};
  trace::StringId group{};       // its name; empty: not known, and the job's ranks are meant
  std::uint64_t seat{kUnknown};  // the caller's rank in that group
  std::uint64_t peer{kUnknown};  // the other's
  std::uint64_t tag{0};
  std::uint64_t bytes{0};               // 0: not known
  std::uint64_t work{0};                // handle that its wait is for; 0: not known
  std::optional<std::size_t> other;     // by index into JobData::ranks: the other side, if known
  std::optional<std::int64_t> sent_ns;  // of a receive's wait: when its message was sent
};

/// Sent by one rank and received by another.
struct Message {
  std::size_t from{0}, to{0};  // by index into JobData::ranks
  std::int64_t sent_ns{0};
  std::int64_t awaited_ns{0};   // the receiver began to wait for it
  std::int64_t received_ns{0};  // and had it
  std::uint64_t bytes{0};       // 0: not known
};

/// A stack. For a thread that was preempted just before (by the sampler, most likely), it is the
/// stack as of when it last ran.
struct ThreadSample {
  std::int64_t time_ns{0};
  trace::StackId stack{};
  trace::SampleState state{trace::SampleState::kUnknown};
  bool holds_gil{false};
};

/// Time in which a thread was ready to run and another had its processor.
struct QueueWait {
  Interval time;
  std::uint32_t cpu{0};
  bool is_preempted{false};  // the processor was taken away; else it was woken
};

/// Time in which a thread was blocked.
struct BlockedWait {
  Interval time;
  std::optional<std::int32_t> waker_tid;  // 0: an interrupt; nothing: the wake-up was not seen
  bool is_stopped{false};                 // by a signal or a debugger
};

/// Use of a thread's time, from scheduler events.
struct ThreadTimes {
  bool is_known{false};
  IntervalSet running;
  IntervalSet runnable;  // ready, but without a processor
  IntervalSet blocked;
  std::vector<QueueWait> queue_waits;      // those of `runnable` whose processor is known, in order
  std::vector<BlockedWait> blocked_waits;  // those of `blocked` that ended, in order
};

struct WorkerData {
  std::int32_t pid{0};
  std::vector<ThreadSample> samples;  // main thread only
};

/// Somebody asked a process to end.
struct EndSignal {
  std::int64_t time_ns{0};
  std::uint64_t signal{0};
  std::int32_t sender_tid{0};  // 0: the kernel
};

struct RankData {
  std::int32_t rank{0};
  std::int32_t pid{0};
  std::int32_t main_tid{0};                  // the thread that trains, which is called its main one
  std::vector<Event> events;                 // by begin
  std::vector<CollectiveEvent> collectives;  // by begin
  std::vector<MessageEvent> messages;        // by begin
  std::vector<ThreadSample> samples;         // of the main thread, by time
  std::vector<WorkerData> workers;           // by pid
  std::int64_t exit_ns{0};                   // its process ended; 0: it was not seen to
  std::uint64_t exit_status{0}, exit_signal{0};
  std::vector<EndSignal> end_signals;  // by time
  ThreadTimes main;
  std::vector<QueueWait> helper_waits;       // of its other threads, by begin
  std::vector<IntervalSet> helpers_running;  // each of its other threads on a processor
  [[nodiscard]] bool ended_well() const {
    return exit_ns != 0 && exit_status == 0 && exit_signal == 0;
  }
};

struct JobData {
  std::string name;             // as its ranks tell it, or the program of a single process
  bool is_single{false};        // one process that tells no rank; it stands here as rank 0
  std::vector<RankData> ranks;  // by rank number, one process each
  std::int32_t world_size{0};   // as its ranks tell it; 0: they do not
  std::set<std::int32_t> pids;  // of all processes of the job: ranks, their workers, launchers
  std::vector<std::string> op_names;
  std::vector<Message> messages;                  // by `sent_ns`
  std::size_t sends_alone{0}, receives_alone{0};  // whose other side was not seen
  std::int64_t end_ns{0};
  std::optional<std::int64_t> stopped_ns;  // when the recorder was told to end the job
  std::vector<std::string> notes;
};

inline constexpr std::int64_t kTimeMaxNs = std::int64_t{1} << 61;

/// When a slice ran, cut at kTimeMaxNs; times may lie before 0. Nothing for a slice that starts or
/// lasts impossibly, or whose end is not in the trace.
[[nodiscard]] std::optional<Interval> slice_time(const trace::SliceTable& slices,
                                                 std::size_t slice);

/// Rank numbers by process.
[[nodiscard]] std::map<std::int32_t, std::int32_t> ranks_by_pid(const JobData& job);

/// The jobs of `trace` with the activity of each rank, those with most ranks first: processes that
/// tell a rank, by the job that they tell; and each other process that was seen to train, as a job
/// of its own. At most 64, the rest is counted in a note of the first. Events with impossible times
/// are left out and counted in a note. Fails with kCorrupt if columns differ in length.
[[nodiscard]] Result<std::vector<JobData>> read_jobs(const trace::Trace& trace);
/// The first of them; without ranks if there is none.
[[nodiscard]] Result<JobData> read_job(const trace::Trace& trace);

}  // namespace kansoku::diagnose
