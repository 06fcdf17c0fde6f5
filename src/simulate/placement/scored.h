// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "simulate/placement/internal/classes.h"
#include "simulate/placement/internal/score_tree.h"
#include "simulate/placement/policy.h"

namespace kansoku::simulate::placement {

inline constexpr int kScoreMax = 100;

/// The GPUs of a node that fits: for a share the GPU with the least that is enough (the lowest
/// index on ties), for whole ones the idle GPUs of lowest index. Bit i: GPU i.
[[nodiscard]] std::uint32_t tightest_gpus(const Request& request, const Node& node);

/// A policy that gives each node that fits a score and takes the highest. A subclass says the
/// score, and which GPUs if not the tightest. Scores are kept for each (request, node) and computed
/// again for a node that changed, at the next call for that request; the best of all is found in
/// O(log nodes).
class ScoredPolicy : public Policy {
 public:
  [[nodiscard]] std::optional<Placed> choose(const Request& request, const NodePool& pool,
                                             RandomStream& random) final;

  /// 0..kScoreMax, values outside are clamped; more is better. Score of a node that fits: a
  /// function of the request, the node and the pool's scales alone.
  [[nodiscard]] virtual int score(const Request& request, const Node& node,
                                  const NodePool& pool) const = 0;

 protected:
  /// The GPUs to take on the node that was chosen.
  [[nodiscard]] virtual std::uint32_t gpus(const Request& request, const Node& node) const {
    return tightest_gpus(request, node);
  }

 private:
  internal::Classes<internal::ScoreTree> classes_;
};

}  // namespace kansoku::simulate::placement
