// SPDX-License-Identifier: Apache-2.0
// A result is no error without being asked.
// expect: cannot convert|could not convert|no viable conversion|conversion from
#include "common/result.h"

kansoku::Result<int> work();
inline kansoku::Error why() {
  return work().error();
}

#ifdef MUST_NOT_COMPILE
inline kansoku::Error why_not() {
  return work();
}
#endif
