// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "simulate/placement/pool.h"

namespace kansoku::simulate::placement {

inline Node node_for_test(std::string name, std::int64_t cpu_milli, std::int32_t gpus,
                          std::uint32_t gpu_model = 0) {
  Node node;
  node.name = std::move(name);
  node.cpu_milli = cpu_milli;
  node.memory_mib = 1'000'000;
  node.gpus = gpus;
  node.gpu_model = gpu_model;
  return node;
}

inline Request share_for_test(std::int64_t cpu_milli, std::int32_t gpu_milli) {
  return {.cpu_milli = cpu_milli, .gpus = 1, .gpu_milli = gpu_milli};
}

inline Request whole_for_test(std::int64_t cpu_milli, std::int32_t gpus) {
  return {.cpu_milli = cpu_milli, .gpus = gpus, .gpu_milli = gpus > 0 ? kWholeGpu : 0};
}

}  // namespace kansoku::simulate::placement
