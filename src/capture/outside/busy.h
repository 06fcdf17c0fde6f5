// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/outside/call.h"

namespace kansoku::capture::outside {

/// Bounds of the time for which a process kept the device busy, from its calls alone.
struct BusyBounds {
  Nanos upper{}, lower{};
  Nanos observed{};     // from the first moment that was looked at to the last
  bool is_known{true};  // false: records were lost or probes were off, and work may be missing
};

/// Work of a stream is pending from the begin of the call that launches it to the return of a wait
/// that covers it: cuCtxSynchronize covers all that was launched before the wait began,
/// cuStreamSynchronize that of its stream, cuEventSynchronize the work before the event's last
/// record. A query that says "ready" is a wait that returned, and a row of queries of one thread a
/// wait that lasted from the first "not ready" to that.
///
/// upper: the union of all pending times. Work from before the first moment, and of unknown kinds,
/// is pending until a wait for the whole context.
/// lower: the union of the waits that found work pending, if everything pending in the process is a
/// kernel, a copy or a set: host functions, waits for values and unknown graphs may block without
/// work. From each wait `wait_overhead` is taken, which a wait for nothing costs.
///
/// Times are those of the records. Memory: one entry a stream and event, at most kHandlesMax each;
/// over that, is_known is false. Not shared between threads.
class BusyClock {
 public:
  static constexpr std::size_t kHandlesMax = 65'536;

  /// `is_whole`: nothing was launched before `begin`. `wait_overhead`: of one call.
  BusyClock(BootTime begin, bool is_whole, Nanos wait_overhead = Nanos{2'000});

  /// Work for a stream; `is_work`: a kernel, copy or set, or a graph of those.
  void on_work(const StreamId& stream, BootTime begin, bool is_work);
  void on_event_record(std::uint64_t event, const StreamId& stream, BootTime begin);
  void on_stream_end(const StreamId& stream);
  /// A wait of a thread that returned without error.
  void on_wait(const Call& call, BootTime end);
  /// A query: ready, or not yet.
  void on_query(const Call& call, BootTime end, bool is_ready);
  /// Something was missed: work, or a wait.
  void on_loss() { is_known_ = false; }

  /// Bounds from the first moment to `end`, which is not before the last record.
  [[nodiscard]] BusyBounds bounds(BootTime end) const;

 private:
  struct Pending {
    BootTime since{};
    BootTime last{};  // begin of the last call that added to it
    bool is_work{true};
  };
  struct Record {
    StreamId stream;
    BootTime begin{};
  };
  struct Asking {
    BootTime since{};
    std::uint64_t about{0};
    Scope scope{Scope::kNone};
  };
  /// A union of intervals that come in the order of their ends.
  class Union {
   public:
    void add(BootTime begin, BootTime end);
    [[nodiscard]] Nanos total() const;
    /// Time before the floor is added up already; an interval that reaches back behind it counts
    /// there twice, or with `cuts` not at all.
    bool cuts{false};

   private:
    std::vector<std::pair<BootTime, BootTime>> spans_;  // disjoint, ascending; bounded by folding
    Nanos folded_{};
    BootTime floor_{};
  };

  void cover(const StreamId& stream, BootTime before, BootTime end);
  void cover_call(const Call& call, BootTime before, BootTime end);
  [[nodiscard]] bool has_pending(const Call& call, BootTime before) const;
  [[nodiscard]] bool is_all_work() const;
  void add_lower(BootTime begin, BootTime end);

  BootTime begin_;
  Nanos wait_overhead_;
  bool is_known_{true};
  std::optional<BootTime> before_;  // work from before: since when it is pending
  std::map<StreamId, Pending> pending_;
  std::unordered_map<std::uint64_t, Record> records_;
  std::map<std::int32_t, Asking> asking_;  // by thread
  Union upper_, lower_;
};

}  // namespace kansoku::capture::outside
