// SPDX-License-Identifier: Apache-2.0
// A result must be looked at (-Werror).
// expect: ignoring return(ed)? value|nodiscard
#include "common/result.h"

kansoku::Result<int> work();
inline bool works() {
  return work().has_value();
}

#ifdef MUST_NOT_COMPILE
inline void careless() {
  work();
}
#endif
