// SPDX-License-Identifier: Apache-2.0
// Checks that are wrong on purpose: a test looks at what the harness makes of them.
#include <cstdlib>

#include "device.h"

namespace gpu_check {

namespace {

__global__ void write(int* where) {
  *where = 1;
}

}  // namespace

GPU_CHECK_BODY(selftest, compares_nothing) {
  c.note("a note is no comparison");
}

GPU_CHECK_BODY(selftest, aborts) {
  c.equal("one", 1, 1);
  std::abort();
}

GPU_CHECK_BODY(selftest, leaves_an_error) {
  c.equal("one", 1, 1);
  write<<<1, 1>>>(nullptr);
}

GPU_CHECK_BODY(selftest, after_the_others) {
  Array<int> memory(c, 1);
  write<<<1, 1>>>(memory);
  c.equal("what a kernel wrote", memory.first(), 1);
}

}  // namespace gpu_check
