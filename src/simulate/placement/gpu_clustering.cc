// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/gpu_clustering.h"

#include <algorithm>

namespace kansoku::simulate::placement {

int GpuClustering::score(const Request& request, const Node& node, const NodePool& pool) const {
  if (request.gpus == 0) return 0;
  const std::int64_t used = pool.gpu_milli_scale() - node.gpu_left_sum;
  const int fullness = static_cast<int>(kScoreMax / 4 * used / pool.gpu_milli_scale());
  const auto kinds = std::count_if(std::begin(node.class_count), std::end(node.class_count),
                                   [](std::uint32_t count) { return count > 0; });
  if (kinds == 0) return fullness + kScoreMax / 4;
  if (node.class_count[request.gpu_class()] == 0) return fullness;
  return fullness + (kinds == 1 ? kScoreMax * 3 / 4 : kScoreMax / 2);
}

}  // namespace kansoku::simulate::placement
