// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trace/model.h"

namespace kansoku::capture {

/// A process in one of its process groups, as a call on the group told it.
struct GroupSeat {
  std::int32_t pid{0};
  std::uint64_t group{0};  // address of the group in that process
  std::int32_t rank{trace::kNoRank}, size{0};
  friend bool operator==(const GroupSeat&, const GroupSeat&) = default;
};

}  // namespace kansoku::capture
