// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {

/// The node whose free vector is least aligned with the request, both scaled to the largest node:
/// 100 * (1 - (CPU left * CPU asked + GPU left * GPU asked) / 2), truncated; left is before
/// placing. Source: Tetris (Grandl et al., SIGCOMM 2014), as openb's simulator (hkust-adsl)
/// computes it.
class DotProd final : public ScoredPolicy {
 public:
  [[nodiscard]] int score(const Request& request, const Node& node,
                          const NodePool& pool) const override;
};

}  // namespace kansoku::simulate::placement
