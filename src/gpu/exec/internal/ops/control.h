// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "gpu/exec/internal/decode/code.h"
#include "gpu/exec/internal/warp.h"

namespace kansoku::gpu::exec {

// Handlers that the decoder puts in place. How each reads its Code stands beside its definition.
const Code* run_join(Warp& warp, const Code* code);
const Code* run_guard(Warp& warp, const Code* code);
const Code* run_branch(Warp& warp, const Code* code);
const Code* run_branch_if(Warp& warp, const Code* code);
const Code* run_exit(Warp& warp, const Code* code);
const Code* run_trap(Warp& warp, const Code* code);
const Code* run_nothing(Warp& warp, const Code* code);
const Code* run_fence(Warp& warp, const Code* code);
const Code* run_barrier(Warp& warp, const Code* code);
const Code* run_barrier_arrive(Warp& warp, const Code* code);
const Code* run_barrier_vote(Warp& warp, const Code* code);
const Code* run_barrier_count(Warp& warp, const Code* code);
const Code* run_barrier_test(Warp& warp, const Code* code);
const Code* run_warp_barrier(Warp& warp, const Code* code);
const Code* run_special(Warp& warp, const Code* code);
const Code* run_call(Warp& warp, const Code* code);
const Code* run_call_of_register(Warp& warp, const Code* code);
/// Functions of the executor's own: vprintf, and the call of a failed assertion, which ends the
/// kernel.
const Code* run_printf(Warp& warp, const Code* code);
const Code* run_assertion(Warp& warp, const Code* code);
const Code* run_return(Warp& warp, const Code* code);
const Code* run_predicate_logic(Warp& warp, const Code* code);
const Code* run_shuffle(Warp& warp, const Code* code);
const Code* run_vote(Warp& warp, const Code* code);
const Code* run_ballot(Warp& warp, const Code* code);
const Code* run_activemask(Warp& warp, const Code* code);
const Code* run_match(Warp& warp, const Code* code);
const Code* run_redux(Warp& warp, const Code* code);

inline bool is_join(const Code* code) {
  return code->run == run_join;
}
inline std::uint32_t first_lane_of(std::uint32_t mask) {
  return static_cast<std::uint32_t>(std::countr_zero(mask));
}
/// Thread index of a lane in its block.
inline std::array<std::uint32_t, 3> thread_of(const Warp& warp, std::uint32_t lane) {
  const auto& block = warp.block->launch->block;
  const std::uint32_t linear = warp.index * kLanes + lane;
  return {linear % block[0], linear / block[0] % block[1], linear / (block[0] * block[1])};
}
/// Ends the kernel; the handler returns this.
inline const Code* fail(Warp& warp, FaultKind kind, const Code* code) {
  warp.stop = Stop::kFault;
  warp.fault = {kind, code->line, first_lane_of(warp.mask), 0, 0, false};
  return nullptr;
}

}  // namespace kansoku::gpu::exec
