// SPDX-License-Identifier: Apache-2.0
#include "sys/clock.h"

#include <ctime>

namespace kansoku::sys {
namespace {

std::int64_t read_clock(clockid_t id) {
  timespec ts{};
  ::clock_gettime(id, &ts);
  return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace

BootTime RealClock::now() const {
  return boot_time(read_clock(CLOCK_BOOTTIME));
}
void sleep_until(BootTime wake) {
  const std::int64_t ns = wake.time_since_epoch().count();
  const timespec until{ns / 1'000'000'000, ns % 1'000'000'000};
  ::clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, nullptr);
}

std::int64_t wall_time_ns() {
  return read_clock(CLOCK_REALTIME);
}

Nanos thread_cpu_time() {
  return Nanos{read_clock(CLOCK_THREAD_CPUTIME_ID)};
}

}  // namespace kansoku::sys
