// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/time.h"

namespace kansoku::sys {

/// CLOCK_BOOTTIME of this machine. Any thread.
class RealClock final : public Clock {
 public:
  [[nodiscard]] BootTime now() const override;
};

/// Sleeps until `wake` (CLOCK_BOOTTIME) or until a signal arrives, whichever is first. Blocks.
void sleep_until(BootTime wake);

/// Seconds since the Unix epoch in nanoseconds, for naming and metadata only; it may jump.
[[nodiscard]] std::int64_t wall_time_ns();

/// Processor time that the calling thread has used so far.
[[nodiscard]] Nanos thread_cpu_time();

}  // namespace kansoku::sys
