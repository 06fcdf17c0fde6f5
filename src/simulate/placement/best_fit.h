// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {

/// The node with the least left afterwards, CPU and GPU weighing the same:
/// 100 * (1 - (CPU left after / largest CPU + GPU left after / largest GPU) / 2), truncated.
/// Source: openb's simulator (hkust-adsl).
class BestFit final : public ScoredPolicy {
 public:
  [[nodiscard]] int score(const Request& request, const Node& node,
                          const NodePool& pool) const override;
};

}  // namespace kansoku::simulate::placement
