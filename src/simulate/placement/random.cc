// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/random.h"

#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {
namespace {

std::uint32_t any_gpu(const Request& request, const Node& node, RandomStream& random) {
  std::int32_t fitting[kGpusPerNodeMax];
  std::uint64_t count = 0;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    if (node.gpu_left[gpu] >= request.gpu_milli) fitting[count++] = gpu;
  }
  return 1U << fitting[random.below(count)];
}

}  // namespace

std::optional<Placed> Random::choose(const Request& request, const NodePool& pool,
                                     RandomStream& random) {
  const auto update = [&](internal::PlaceSet& feasible, std::size_t place, std::uint32_t node) {
    feasible.set(place, pool.fits(request, node));
  };
  const internal::PlaceSet& feasible = classes_.refresh(request, pool, update);
  if (feasible.count() == 0) return std::nullopt;
  const std::uint32_t index = classes_.node_at(feasible.member(random.below(feasible.count())));
  const Node& node = pool.node(index);
  return Placed{index,
                request.is_share() ? any_gpu(request, node, random) : tightest_gpus(request, node)};
}

}  // namespace kansoku::simulate::placement
