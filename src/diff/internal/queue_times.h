// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trace/model.h"

namespace kansoku::diff {

/// When threads were ready to run and another had their processor, from scheduler events. That time
/// is the machine's, not the program's.
class QueueTimes {
 public:
  /// Takes the named threads; the columns of the scheduler tables have equal lengths.
  QueueTimes(const trace::Trace& trace, const std::set<std::int32_t>& tids);

  /// True if the scheduler was recorded for any of them.
  [[nodiscard]] bool is_known() const { return !threads_.empty(); }
  /// Nanoseconds of `tid` in the queue between two times; 0 if unknown.
  [[nodiscard]] std::int64_t within(std::int32_t tid, std::int64_t begin_ns,
                                    std::int64_t end_ns) const;
  /// The instant that a sample is of: the sampler takes the thread's processor, so a sample soon
  /// after a preemption shows the code that ran before. Nothing for one later in the queue.
  [[nodiscard]] std::optional<std::int64_t> sampled_at(std::int32_t tid,
                                                       std::int64_t time_ns) const;

 private:
  struct Wait {
    std::int64_t begin_ns{0}, end_ns{0};
    std::int64_t before_ns{0};  // in the queue until then
    bool is_preempted{false};
  };
  [[nodiscard]] std::int64_t until(const std::vector<Wait>& waits, std::int64_t time_ns) const;
  std::map<std::int32_t, std::vector<Wait>> threads_;
};

}  // namespace kansoku::diff
