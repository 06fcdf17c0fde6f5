// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/rng.h"
#include "simulate/placement/pool.h"

namespace kansoku::simulate::placement {

/// Chooses a node and its GPUs for one request. One object a cluster; it may keep scores between
/// calls (Node::version tells changed nodes). Not shared between threads. A new policy = one header
/// with its class, one line in policy.cc, one hand-worked test.
class Policy {
 public:
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;
  /// The place, or nothing if no node that is up fits. Takes nothing from the pool. Equal scores:
  /// the smallest node name. `random` is drawn from only by policies that use chance.
  [[nodiscard]] virtual std::optional<Placed> choose(const Request& request, const NodePool& pool,
                                                     RandomStream& random) = 0;
};

/// A shape of request and its share among those of a workload: FGD weighs it.
struct TypicalPod {
  Request request;
  double share{0};
};
/// The distinct requests (memory apart: it is 0 in the result) by falling count until `coverage` of
/// all is reached, shares renormalised. Ties: more CPU first, then more GPU milli, then more GPUs,
/// then the larger set of types. Source: openb's simulator (hkust-adsl), 0.95 there.
[[nodiscard]] std::vector<TypicalPod> typical_pods(std::span<const Request> requests,
                                                   double coverage = 0.95);

/// "random", "dot_prod", "gpu_clustering", "gpu_packing", "best_fit", "fgd", "first_fit".
[[nodiscard]] std::span<const std::string_view> policy_names();
/// kNotFound names the policies there are. `typical` is used by "fgd" only, and copied.
[[nodiscard]] Result<std::unique_ptr<Policy>> make_policy(std::string_view name,
                                                          std::span<const TypicalPod> typical);

/// Expected GPU milli of the node that typical pods cannot use: F(node) of the FGD policy. A
/// typical pod that the node can host by CPU, type and GPUs leaves those GPUs unused on which it
/// does not fit; any other, and one without GPU, all that is left.
/// Source: Weng et al., USENIX ATC 2023 (FGD), as its public simulator computes it.
[[nodiscard]] double fragmentation(const Node& node, std::span<const TypicalPod> typical);

}  // namespace kansoku::simulate::placement
