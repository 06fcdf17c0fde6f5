// SPDX-License-Identifier: Apache-2.0
// A result does not turn into a number by way of bool.
// expect: cannot convert|no viable conversion
#include "common/result.h"

kansoku::Result<int> work();
inline int number() {
  return work().value_or(0);
}

#ifdef MUST_NOT_COMPILE
inline int careless() {
  return work();
}
#endif
