// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/scored.h"

#include <algorithm>

namespace kansoku::simulate::placement {

std::uint32_t tightest_gpus(const Request& request, const Node& node) {
  std::uint32_t chosen = 0;
  if (request.is_share()) {
    std::int32_t best = -1;
    for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
      if (node.gpu_left[gpu] < request.gpu_milli) continue;
      if (best < 0 || node.gpu_left[gpu] < node.gpu_left[best]) best = gpu;
    }
    CHECK(best >= 0);
    return 1U << best;
  }
  std::int32_t missing = request.gpus;
  for (std::int32_t gpu = 0; gpu < node.gpus && missing > 0; ++gpu) {
    if (node.gpu_left[gpu] != kWholeGpu) continue;
    chosen |= 1U << gpu;
    --missing;
  }
  CHECK(missing == 0);
  return chosen;
}

std::optional<Placed> ScoredPolicy::choose(const Request& request, const NodePool& pool,
                                           RandomStream& /*random*/) {
  const auto update = [&](internal::ScoreTree& tree, std::size_t place, std::uint32_t node) {
    const bool fits = pool.fits(request, node);
    tree.set(place, fits ? std::clamp(score(request, pool.node(node), pool), 0, kScoreMax) : -1);
  };
  const internal::ScoreTree& tree = classes_.refresh(request, pool, update);
  if (tree.best_score() < 0) return std::nullopt;
  const std::uint32_t node = classes_.node_at(tree.best_place());
  return Placed{node, gpus(request, pool.node(node))};
}

}  // namespace kansoku::simulate::placement
