// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/schedule/ordered.h"

namespace kansoku::simulate::schedule {

struct EstimateKey {
  Nanos operator()(const Waiting& waiting) const { return waiting.estimate; }
};
/// Shortest job first, by the estimate given with the request; strict.
using Shortest = Ordered<EstimateKey>;

}  // namespace kansoku::simulate::schedule
