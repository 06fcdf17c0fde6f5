// SPDX-License-Identifier: Apache-2.0
// A descriptor has one owner.
// expect: use of deleted function|call to deleted constructor
#include "sys/fd.h"

#include <utility>

inline kansoku::sys::Fd moved(kansoku::sys::Fd& fd) {
  return std::move(fd);
}

#ifdef MUST_NOT_COMPILE
inline kansoku::sys::Fd copied(kansoku::sys::Fd& fd) {
  return fd;
}
#endif
