// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "capture/lifecycle.h"
#include "capture/observed.h"
#include "common/stat.h"
#include "common/time.h"
#include "trace/writer.h"

namespace kansoku::capture {

/// Source of events of the observed processes, which it writes into the trace: a recorder is made
/// of these. It owns its counters. All calls come from one thread.
class Source {
 public:
  Source() = default;
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// "python_stacks": for people and metadata.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The process is observed from now on, even before it was looked at.
  virtual void observe(std::int32_t /*pid*/) {}
  /// Looks at a process: a new one, or one that may have loaded libraries since.
  virtual void inspect(const Observed& /*process*/, BootTime /*now*/) {}
  /// True if it reads the process's Python stacks.
  [[nodiscard]] virtual bool has_stacks(std::int32_t /*pid*/) const { return false; }
  /// It called exec: all that was known of its program is void.
  virtual void renew(std::int32_t /*pid*/) {}
  virtual void forget(std::int32_t /*pid*/) {}

  /// When it wants to be asked next; BootTime::max(): not at all.
  [[nodiscard]] virtual BootTime due() const = 0;
  virtual void poll(const Processes& processes, BootTime now) = 0;
  /// Takes in waiting events, as they stand: before a trace begins or ends.
  virtual void drain() {}
  /// Processes that came and went, as it heard; empty if it is not told of that.
  [[nodiscard]] virtual std::vector<LifecycleEvent> take_lifecycle() { return {}; }
  /// Processes that took part in collectives since the last call.
  [[nodiscard]] virtual std::set<std::int32_t> take_communicating() { return {}; }

  /// Places of processes in the process groups that they communicated in since the last call.
  [[nodiscard]] virtual std::vector<GroupSeat> take_seats() { return {}; }

  /// Processes, observed or not, that had or wanted the observed ones' processors: newly seen since
  /// the last call.
  [[nodiscard]] virtual std::set<std::int32_t> take_neighbours() { return {}; }

  /// A trace begins, anew in the writer: declarations of the one before are gone. Events until
  /// end_trace() are written.
  virtual void begin_trace(BootTime now) = 0;
  virtual void end_trace(BootTime now) = 0;
  /// Off: costs the processes nothing, hears nothing.
  virtual void set_enabled(bool enabled) = 0;

  /// Records that it lost since the beginning, for the status line.
  [[nodiscard]] virtual std::uint64_t lost() const { return 0; }
  /// Losses and problems since the beginning.
  virtual void add_losses(Losses& out) const = 0;
  virtual void add_problems(std::vector<std::string>& /*out*/) const {}
};

/// Makes a source that writes there. The writer outlives it.
using SourceMaker = std::function<std::unique_ptr<Source>(trace::Writer&)>;

}  // namespace kansoku::capture
