// SPDX-License-Identifier: Apache-2.0
#include "sys/entropy.h"

#include <sys/random.h>

#include <cerrno>

namespace kansoku::sys {

Result<std::uint64_t> random_u64() {
  std::uint64_t value = 0;
  ssize_t got = -1;
  // Up to 256 bytes come whole once the generator is seeded; before, a signal may interrupt.
  while ((got = ::getrandom(&value, sizeof(value), 0)) < 0 && errno == EINTR) {
  }
  if (got != sizeof(value)) return errno_error(errno, "get", "random bytes");
  return value;
}

}  // namespace kansoku::sys
