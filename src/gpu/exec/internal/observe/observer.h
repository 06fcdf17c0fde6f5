// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/exec/internal/decode/compiled.h"
#include "gpu/exec/internal/observe/access_recorder.h"
#include "gpu/exec/internal/observe/hazards.h"
#include "gpu/exec/observation.h"

namespace kansoku::gpu::exec {

/// A copy of the module in which an observer stands in front of every instruction. Launches that
/// nobody observes run the module itself, so looking costs nothing when it is off.
[[nodiscard]] std::unique_ptr<CompiledModule> observed_copy(const CompiledModule& module);

/// Observations of one worker of a launch.
class Observer {
 public:
  Observer(const LaunchState& launch, const Observe& what);

  void begin_block(const BlockState& block);
  /// All lanes of these warps have met at bar.sync.
  void block_barrier(std::uint32_t warps, bool is_everybody);
  /// The running lanes have ended while others of their warp wait for them at a barrier. Hardware
  /// lets those go on; the language does not promise it.
  void went_around_barrier(const Warp& warp, std::uint32_t barrier_line, std::uint32_t exit_line);
  /// Runs one instruction and notes its accesses.
  const Code* run(Warp& warp, const Code* code);

  /// Adds this worker's observations. Hazards are put in the order of blocks by the caller.
  void add_to(Observations& out, AccessRecorder& sets, std::vector<Hazard>& hazards);

 private:
  struct Touched {
    std::uint32_t mask{0};
    std::array<std::uint64_t, kLanes> addresses{};
    std::uint32_t bytes{0};  // of a lane
  };
  const Code* run_one(Warp& warp, const Code* code);
  [[nodiscard]] Touched touched_by(Warp& warp, const Code* code, const CodeInfo& info) const;
  void count(Warp& warp, const Code* code, const CodeInfo& info);
  void note_memory(Warp& warp, const Code* code, const CodeInfo& info, const Touched& touched);
  void note_copy(Warp& warp, const Code* code, const Touched& to, const Touched& from);
  void note_shared(const Warp& warp, const Code* code, const CodeInfo& info,
                   const Touched& touched);
  void note_collisions(Warp& warp, const Code* code, const CodeInfo& info, const Touched& touched);
  void note_global(const CodeInfo& info, const Touched& touched);

  const LaunchState& launch_;
  Observe what_;
  Profile profile_;
  struct FunctionCounts {
    std::vector<InstructionCount> by_code;
  };
  std::vector<FunctionCounts> counts_;  // by function
  std::optional<SharedHazards> hazards_;
  std::uint64_t instruction_{0};  // serial of the access in hand
  AccessRecorder sets_;
};

}  // namespace kansoku::gpu::exec
