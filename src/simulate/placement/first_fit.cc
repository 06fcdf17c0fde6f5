// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/first_fit.h"

namespace kansoku::simulate::placement {

std::optional<Placed> FirstFit::choose(const Request& request, const NodePool& pool,
                                       RandomStream& /*random*/) {
  const auto update = [&](internal::ScoreTree& tree, std::size_t place, std::uint32_t node) {
    tree.set(place, pool.fits(request, node) ? 0 : -1);
  };
  const internal::ScoreTree& tree = classes_.refresh(request, pool, update);
  if (tree.best_score() < 0) return std::nullopt;
  const std::uint32_t node = classes_.node_at(tree.best_place());
  return Placed{node, tightest_gpus(request, pool.node(node))};
}

}  // namespace kansoku::simulate::placement
