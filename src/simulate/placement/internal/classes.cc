// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/internal/classes.h"

namespace kansoku::simulate::placement::internal {

std::size_t RequestHash::operator()(const Request& request) const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  };
  mix(static_cast<std::uint64_t>(request.cpu_milli));
  mix(static_cast<std::uint64_t>(request.memory_mib));
  mix((static_cast<std::uint64_t>(request.gpus) << 32) ^
      static_cast<std::uint64_t>(request.gpu_milli));
  mix(request.gpu_types);
  return static_cast<std::size_t>(hash);
}

}  // namespace kansoku::simulate::placement::internal
