// SPDX-License-Identifier: Apache-2.0
// Ids of two things have no order between them.
// expect: no match for .operator==|invalid operands to binary expression
#include "common/ids.h"

using StreamId = kansoku::Id<struct StreamTag>;
using KernelId = kansoku::Id<struct KernelTag>;
static_assert(StreamId{1} == StreamId{1});

#ifdef MUST_NOT_COMPILE
static_assert(StreamId{1} == KernelId{1});
#endif
