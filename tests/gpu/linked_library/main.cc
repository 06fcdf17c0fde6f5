// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

int sum();

int main() {
  std::printf("sum %d\n", sum());
  return 0;
}
