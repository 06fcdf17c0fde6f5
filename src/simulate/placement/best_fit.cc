// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/best_fit.h"

namespace kansoku::simulate::placement {

int BestFit::score(const Request& request, const Node& node, const NodePool& pool) const {
  const auto after = [](std::int64_t left, std::int64_t asked, std::int64_t scale) {
    return static_cast<double>(left - asked) / static_cast<double>(scale) * 0.5;
  };
  const double empty = after(node.cpu_left, request.cpu_milli, pool.cpu_milli_scale()) +
                       after(node.gpu_left_sum, request.gpu_milli_sum(), pool.gpu_milli_scale());
  return static_cast<int>((1.0 - empty) * kScoreMax);
}

}  // namespace kansoku::simulate::placement
