// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "infer/run.h"
#include "stats/intervals.h"
#include "trace/model.h"

namespace kansoku::infer {

/// When each thread had no processor, and why, by the scheduler's events of a recording.
class OffCpu {
 public:
  explicit OffCpu(const trace::Trace& trace);
  [[nodiscard]] bool is_known() const { return is_known_; }
  struct Times {
    double runnable_ns{0}, blocked_ns{0};
  };
  /// Within a span, of one thread: ready without a processor; in uninterruptible sleep.
  [[nodiscard]] Times within(std::int32_t tid, const Span& span) const;

 private:
  struct Sets {
    stats::IntervalSet runnable, blocked;
  };
  std::unordered_map<std::int32_t, Sets> by_tid_;
  bool is_known_{false};
};

}  // namespace kansoku::infer
