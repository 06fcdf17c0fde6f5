// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace kansoku::stats::internal {

/// Calls `work(worker, chunk)` once for each chunk from 0 to `chunks` - 1, on up to `workers` >= 1
/// threads, and after each `merge(worker)`: the merges one after another, in the order of the
/// chunks whatever the number of threads. `work` may use what belongs to its worker, `merge` what
/// belongs to all; neither may throw. Worker 0 is the calling thread; where the system has no
/// thread to give, fewer do the work. Returns when all is merged. Blocks.
void in_order(std::size_t chunks, std::size_t workers,
              const std::function<void(std::size_t worker, std::size_t chunk)>& work,
              const std::function<void(std::size_t worker)>& merge);

}  // namespace kansoku::stats::internal
