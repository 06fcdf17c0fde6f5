// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/time.h"
#include "gpu/exec/cost.h"
#include "gpu/exec/fault.h"
#include "gpu/exec/limits.h"
#include "gpu/exec/observation.h"
#include "gpu/exec/program.h"
#include "gpu/exec/workers.h"

namespace kansoku::gpu::exec {

struct LaunchOptions {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t dynamic_shared_bytes{0};
  std::span<const std::byte> params;     // laid out as KernelInfo says
  std::uint32_t workers{1};              // threads that run blocks; 1: same order every time
  Workers* threads{nullptr};             // of earlier launches; null: made for this one
  std::uint32_t local_bytes{64 * 1024};  // of a thread, for calls and arrays
  std::uint32_t sm_count{kSmCount};
  Nanos time_limit{0};          // 0: none
  const Clock* clock{nullptr};  // must be given with a limit; %globaltimer unless there are `costs`
  std::uint64_t number{0};      // %gridid; 0: none, faults do not show it
  /// Virtual time: %globaltimer is begin_ns plus the block's cost so far, and `counts`, which must
  /// be given too, gets the launch's counts; not after a fault.
  const CycleCosts* costs{nullptr};
  std::uint64_t begin_ns{0};
  LaunchCounts* counts{nullptr};
  /// Sink of vprintf; called by several workers at once, each text whole. Empty: output is dropped.
  /// Empty: nowhere.
  std::function<void(std::string_view text)> print;
  /// Sink of failed assertions, likewise.
  std::function<void(std::string_view text)> complain;
  /// All blocks are resident at once and take turns, so that they may wait for each other in loops;
  /// kLimit if they are more than sm_count * resident_blocks_per_sm(). %envreg1 and %envreg2 hold
  /// the low and the high half of the global address of 64 bytes of zeros that are this launch's
  /// own, for a barrier of the grid; in other launches both are 0.
  bool is_cooperative{false};
  const std::atomic<bool>* cancel{nullptr};  // may be null; true ends the kernel like a time limit
  /// Memory of other devices that the kernel may access too; by `memory` alone if empty.
  std::span<const Memory* const> peers;
  Observe observe;
  Observations* observations{nullptr};  // must be given with `observe`; filled also after a fault
};

/// Blocks of a kernel that can be resident on one multiprocessor: threads, shared memory and the
/// 32 blocks that current hardware holds bound it; 0 if one is too large.
[[nodiscard]] std::uint32_t resident_blocks_per_sm(const KernelInfo& kernel,
                                                   std::uint32_t threads_per_block,
                                                   std::uint32_t dynamic_shared_bytes);

/// Runs one kernel to its end on the calling thread and `workers` - 1 others. Memory allocated
/// meanwhile is not accessible, memory freed meanwhile still is. A fault of the kernel is a value,
/// an impossible launch (block too large, wrong parameter size, too much shared memory) an error of
/// code kLimit.
[[nodiscard]] Result<std::optional<Fault>> launch(const Program& program, std::size_t kernel,
                                                  const Memory& memory,
                                                  const LaunchOptions& options);

}  // namespace kansoku::gpu::exec
