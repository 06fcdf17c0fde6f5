// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/recording_for_test.h"

namespace kansoku::gpu::activity {

/// A training loop whose host runs ahead of its device and waits for it at the end of each step.
/// One cause of lost time is planted, or a look-alike of it.
struct Plan {
  std::uint64_t seed{1};
  std::int32_t ranks{1};
  int steps{40};
  bool marks_steps{false};  // as PyTorch's profiler does
  int kernels{50};          // a step
  double kernel_us{100};    // of each, with 1 % of noise
  double launch_us{5};      // the launch call
  double begin_us{6};       // from the call to the earliest begin

  int slow_rank{-1}, other_slow_rank{-1};
  double slow_ratio{1};       // its kernels' times
  bool names_devices{false};  // each rank's device has another name
  int slow_kernel{-1};        // only this one of four kernels is slow on the slow rank
  bool does_more{false};  // operators say that it is so by more work, but for one kernel of four
  bool two_sizes{false};  // one kernel does every second time three times the work
  int more_kernels{0};    // of the slow rank

  int tiny_kernels{0};  // launched after the wait, before the others
  double tiny_us{3}, tiny_launch_us{8};
  double slow_tiny_launch_us{0};  // on the slow rank, unless 0

  double copy_us{0};          // a copy at the begin of a step
  bool copies_beside{false};  // pinned, in another stream, in the middle of the kernels

  int syncs{0};              // spread over the kernels of a step
  bool syncs_at_end{false};  // all when the device is idle
  double after_sync_us{15};  // of the program, before the next launch

  int allocations{0};  // pairs of cudaMalloc and cudaFree, spread; the latter waits
  double allocation_us{40};
  int allocations_before{0};  // before the first step

  double loader_us{0};       // in the loader, at the begin of the step
  bool loads_beside{false};  // while the device is busy

  double stall_us{0};  // once, before a launch

  double lock_us{0};            // waiting for a lock, at the begin of the step
  bool locks_elsewhere{false};  // by a thread that launches nothing

  double leak_bytes{0};   // live bytes more in each step
  double pool_bytes{0};   // a pool that doubles until it has 256 times that
  int fails_in_step{-1};  // cudaMalloc out of memory
  bool survives{false};   // and the loop goes on
};

/// Writes the recording of a plan; gives the steps of each rank.
std::vector<ProcessSteps> write_planted(const Plan& plan, Recording& out);

/// The report of the recording that a plan makes.
[[nodiscard]] WorkReport planted(const Plan& plan);

}  // namespace kansoku::gpu::activity
