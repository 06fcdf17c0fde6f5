// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/dot_prod.h"

namespace kansoku::simulate::placement {

int DotProd::score(const Request& request, const Node& node, const NodePool& pool) const {
  const auto product = [](std::int64_t left, std::int64_t asked, std::int64_t scale) {
    const auto unit = static_cast<double>(scale);
    return static_cast<double>(left) / unit * (static_cast<double>(asked) / unit);
  };
  const double aligned =
      product(node.cpu_left, request.cpu_milli, pool.cpu_milli_scale()) +
      product(node.gpu_left_sum, request.gpu_milli_sum(), pool.gpu_milli_scale());
  return static_cast<int>(kScoreMax * (1.0 - aligned / 2));
}

}  // namespace kansoku::simulate::placement
