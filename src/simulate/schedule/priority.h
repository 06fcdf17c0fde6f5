// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/schedule/ordered.h"

namespace kansoku::simulate::schedule {

struct PriorityKey {
  std::int64_t operator()(const Waiting& waiting) const { return waiting.priority; }
};
/// Smaller priority numbers first, then by arrival; strict.
using Priority = Ordered<PriorityKey>;

}  // namespace kansoku::simulate::schedule
