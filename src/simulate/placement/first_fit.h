// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {

/// The first node, in the order of the pool, that fits; its tightest GPUs.
class FirstFit final : public Policy {
 public:
  [[nodiscard]] std::optional<Placed> choose(const Request& request, const NodePool& pool,
                                             RandomStream& random) override;

 private:
  using Classes = internal::Classes<internal::ScoreTree>;
  Classes classes_{Classes::Order::kIndex};
};

}  // namespace kansoku::simulate::placement
