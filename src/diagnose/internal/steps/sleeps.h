// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stats/intervals.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// SleepSample::on of a thread that waits for the right to run Python.
inline constexpr std::string_view kInterpreterLock = "interpreter lock";

/// A main thread as it was seen asleep.
struct SleepSample {
  std::int64_t time_ns{0};
  std::string_view call, on;  // "futex", "read"; "interpreter lock", "pipe:[17]": borrowed
};

/// Those within `region` by thread, and by time as the trace has them. Borrowed from the trace.
[[nodiscard]] std::map<std::int32_t, std::vector<SleepSample>> sleep_samples(
    const trace::Trace& trace, const stats::IntervalSet& region);
/// Those of one thread.
[[nodiscard]] std::vector<SleepSample> sleep_samples(const trace::Trace& trace, std::int32_t tid,
                                                     const stats::IntervalSet& region);

/// "for the interpreter lock", "for a lock or a condition (futex)", "in read on pipe:[17]".
[[nodiscard]] std::string wait_text(std::string_view call, std::string_view on);

}  // namespace kansoku::diagnose
