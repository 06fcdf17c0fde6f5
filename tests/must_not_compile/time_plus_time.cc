// SPDX-License-Identifier: Apache-2.0
// Two points in time have no sum.
// expect: no match for .operator\+|invalid operands to binary expression
#include "common/time.h"

constexpr kansoku::BootTime kTime = kansoku::boot_time(5) + kansoku::Nanos{1};

#ifdef MUST_NOT_COMPILE
constexpr auto kSum = kTime + kTime;
#endif
