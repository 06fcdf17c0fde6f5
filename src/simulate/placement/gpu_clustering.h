// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {

/// Keeps kinds of GPU requests (a share, 1, 2, 4, 8 whole GPUs) apart: a node that holds this kind
/// alone is best, then one that holds it among others, then one without GPU requests, then the
/// rest; within each the fullest. Requests without GPU: all nodes equal. Source: Gandiva (Xiao et
/// al., OSDI 2018), as openb's simulator (hkust-adsl) computes it.
class GpuClustering final : public ScoredPolicy {
 public:
  [[nodiscard]] int score(const Request& request, const Node& node,
                          const NodePool& pool) const override;
};

}  // namespace kansoku::simulate::placement
