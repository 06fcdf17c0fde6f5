// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "simulate/placement/internal/frag_table.h"
#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {

/// Fragmentation gradient descent: the node whose fragmentation F grows least,
/// 100 * sigmoid((F before - F after) / 1000), truncated; a share goes to the GPU for which that is
/// highest (the lowest index on ties), whole GPUs are the idle ones of lowest index.
/// Source: Weng et al., USENIX ATC 2023, as its public simulator (hkust-adsl) computes it.
class Fgd final : public ScoredPolicy {
 public:
  /// F weighs `typical` (fragmentation() in policy.h says how); copied.
  explicit Fgd(std::span<const TypicalPod> typical);
  [[nodiscard]] int score(const Request& request, const Node& node,
                          const NodePool& pool) const override;

 protected:
  [[nodiscard]] std::uint32_t gpus(const Request& request, const Node& node) const override;

 private:
  struct Choice {
    int score{-1};
    std::int32_t gpu{-1};
  };
  [[nodiscard]] Choice best_gpu(const Request& request, const Node& node) const;

  internal::FragTable table_;
};

}  // namespace kansoku::simulate::placement
