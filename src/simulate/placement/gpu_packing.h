// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {

/// First GPUs in use (the fullest first), then idle GPUs of a node in use, then a node without any
/// GPU in use. Requests without GPU: all nodes equal.
/// Source: MLaaS in the wild (Weng et al., NSDI 2022), as openb's simulator (hkust-adsl) computes
/// it.
class GpuPacking final : public ScoredPolicy {
 public:
  [[nodiscard]] int score(const Request& request, const Node& node,
                          const NodePool& pool) const override;
};

}  // namespace kansoku::simulate::placement
