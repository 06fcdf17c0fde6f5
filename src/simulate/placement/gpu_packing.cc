// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/gpu_packing.h"

#include <algorithm>

namespace kansoku::simulate::placement {

int GpuPacking::score(const Request& request, const Node& node, const NodePool& /*pool*/) const {
  constexpr int kNodeInUse = kScoreMax / 2;  // the most for idle GPUs of a node in use
  constexpr int kNodeIdle = kScoreMax / 3;   // the most for a node without any GPU in use
  if (request.gpus == 0) return 0;
  if (node.gpus_idle == node.gpus) return std::max(kNodeIdle - node.gpus, node.gpus);
  // The tightest GPUs are taken; whole ones are idle by definition.
  if (!request.is_share()) return std::max(kNodeInUse - request.gpus, kNodeIdle);
  std::int32_t left = kWholeGpu;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    if (node.gpu_left[gpu] >= request.gpu_milli) left = std::min(left, node.gpu_left[gpu]);
  }
  if (left == kWholeGpu) return std::max(kNodeInUse - 1, kNodeIdle);
  return std::max(kScoreMax - left / 10 / 10, kNodeInUse);
}

}  // namespace kansoku::simulate::placement
