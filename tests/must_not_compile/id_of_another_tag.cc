// SPDX-License-Identifier: Apache-2.0
// An id of one thing is not an id of another.
// expect: cannot convert|could not convert|no viable conversion
#include "common/ids.h"

using StreamId = kansoku::Id<struct StreamTag>;
using KernelId = kansoku::Id<struct KernelTag>;
constexpr StreamId kStream{1};

#ifdef MUST_NOT_COMPILE
constexpr KernelId kKernel = kStream;
#endif
