// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "common/time.h"
#include "sys/clock.h"

namespace kansoku::sys {

/// How long a test waits for an event that has to come: so long that only a broken program reaches
/// it, however slow or loaded the machine is.
inline constexpr Nanos kPatienceForTest = std::chrono::minutes{2};

/// Looks again and again, after pauses, until `is_done()`; false if it never was. Blocks.
template <class Done>
[[nodiscard]] bool poll_for_test(const Done& is_done, Nanos pause = std::chrono::milliseconds{1}) {
  const RealClock clock;
  for (const BootTime end = clock.now() + kPatienceForTest; clock.now() < end;) {
    if (is_done()) return true;
    sleep_until(clock.now() + pause);  // allowed: the pause of a poll loop
  }
  return is_done();
}

}  // namespace kansoku::sys
