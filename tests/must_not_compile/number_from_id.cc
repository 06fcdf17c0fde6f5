// SPDX-License-Identifier: Apache-2.0
// An id is no number.
// expect: cannot convert|no viable conversion
#include "common/ids.h"

#include <cstdint>

using StreamId = kansoku::Id<struct StreamTag>;
constexpr std::uint32_t kNumber = StreamId{1}.raw;

#ifdef MUST_NOT_COMPILE
constexpr std::uint32_t kOther = StreamId{1};
#endif
