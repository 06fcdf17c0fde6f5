// SPDX-License-Identifier: Apache-2.0
// throws BREAKPOINTS: every second call of observed::work() ends by an exception, which its
// caller's caller catches. Begins when its functions hold so many breakpoints.
#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "probed.h"

namespace observed {
[[gnu::noinline]] int work(int number) {
  if (number % 2 != 0) throw std::runtime_error("odd");
  return number / 2;
}
[[gnu::noinline]] int outer(int number) {
  return work(number) + 1;
}
}  // namespace observed

int main(int, char** arguments) {
  const auto [first, last] = std::minmax({reinterpret_cast<const char*>(&observed::work),
                                          reinterpret_cast<const char*>(&observed::outer)});
  wait_until_probed(first, static_cast<std::size_t>(last - first) + 24,
                    static_cast<std::size_t>(arguments[1][0] - '0'));
  int caught = 0, sum = 0;
  for (int i = 0; i < 100; ++i) {
    try {
      sum += observed::outer(i);
    } catch (const std::runtime_error&) {
      ++caught;
    }
  }
  std::printf("caught %d, sum %d\n", caught, sum);
  return 0;
}
