// SPDX-License-Identifier: Apache-2.0
// Every second call of observed::work() ends by an exception, which its caller's caller catches.
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

namespace observed {
[[gnu::noinline]] int work(int number) {
  if (number % 2 != 0) throw std::runtime_error("odd");
  return number / 2;
}
[[gnu::noinline]] int outer(int number) {
  return work(number) + 1;
}
}  // namespace observed

int main() {
  sleep(1);  // until it is found
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
