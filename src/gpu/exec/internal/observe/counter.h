// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/isa.h"
#include "gpu/exec/cost.h"
#include "gpu/exec/internal/decode/compiled.h"
#include "gpu/exec/internal/warp_context.h"

namespace kansoku::gpu::exec {

/// A copy of the module with counters in front of each run of instructions that nothing stops or
/// enters, and of each access of global memory. Launches whose instructions nobody counts run the
/// module itself, so counting costs nothing when it is off. `module` has every instruction where
/// the text has it. `costs`: null if only the warps' own count is wanted.
[[nodiscard]] std::unique_ptr<CompiledModule> counted_copy(const CompiledModule& module,
                                                           const CycleCosts* costs, Isa isa);

/// Counts the instructions of one worker's warps: for %clock, and for a model of time.
class Counter {
 public:
  /// `costs`: null if only the warps' own count is wanted. `sm_count`: at least 1.
  Counter(const CycleCosts* costs, std::uint32_t sm_count);

  /// Cost of one instruction and the memory it will touch; to be asked before it runs, as it may
  /// overwrite its address.
  struct Work {
    CostClass cost{CostClass::kArithmetic};
    std::uint32_t sectors{0};
  };
  [[nodiscard]] Work look(const Warp& warp, const Code* code, const CodeInfo& info) const;
  /// It has run; not for one that waits and will run again.
  void add(Warp& warp, const Work& work);
  /// All warps of the block have ended.
  void end_block(const BlockState& block, std::uint64_t latency_cycles);
  void add_to(LaunchCounts& out) const;

 private:
  const CycleCosts* costs_;
  LaunchCounts counts_;
};

/// True if the warp stopped in front of the instruction and will run it again.
[[nodiscard]] inline bool will_run_again(const Warp& warp) {
  return warp.stop == Stop::kWarpSync || warp.stop == Stop::kMissing;
}

}  // namespace kansoku::gpu::exec
