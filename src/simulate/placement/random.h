// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulate/placement/internal/classes.h"
#include "simulate/placement/internal/place_set.h"
#include "simulate/placement/policy.h"

namespace kansoku::simulate::placement {

/// One of the nodes that fit, each as likely; for a share one of its GPUs that fit, each as likely;
/// for whole GPUs the idle ones of lowest index.
class Random final : public Policy {
 public:
  [[nodiscard]] std::optional<Placed> choose(const Request& request, const NodePool& pool,
                                             RandomStream& random) override;

 private:
  internal::Classes<internal::PlaceSet> classes_;
};

}  // namespace kansoku::simulate::placement
