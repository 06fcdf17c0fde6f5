// SPDX-License-Identifier: Apache-2.0
// Which lanes of a warp run next: the deepest frame first, then the lowest address, so that lanes
// left behind catch up and meet the others where the ways join. A quantum of backward branches
// keeps a spinning group from starving the one it waits for.
#include <algorithm>
#include <tuple>

#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/warp_context.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::uint32_t kQuantum = 64;  // backward branches while other groups want to run

std::uint32_t depth_of(const Frame* frame) {
  std::uint32_t depth = 0;
  for (; frame != nullptr && frame->caller != nullptr; frame = frame->caller)
    ++depth;
  return depth;
}

void put_back(WarpContext& warp, Waiting waiting) {
  for (Group& group : warp.groups) {
    if (group.pc != warp.resume || group.frame != warp.frame) continue;
    group.mask |= warp.mask;
    group.waiting = Waiting::kNot;  // one more has come: look again
    return;
  }
  warp.groups.add(warp.mask, warp.resume, warp.frame, waiting);
}

/// The group that goes on; groups.size() if all wait.
std::size_t next_group(const WarpContext& warp, const Code* after) {
  if (warp.groups.size() == 1 && warp.groups[0].waiting == Waiting::kNot) return 0;
  std::size_t best = warp.groups.size();
  const auto rank = [&](const Group& group) {
    // After a quantum the groups take turns in the order of their places.
    const bool has_passed = after != nullptr && group.pc <= after;
    return std::make_tuple(has_passed, -static_cast<std::int64_t>(depth_of(group.frame)), group.pc);
  };
  for (std::size_t i = 0; i < warp.groups.size(); ++i) {
    if (warp.groups[i].waiting != Waiting::kNot) continue;
    if (best == warp.groups.size() || rank(warp.groups[i]) < rank(warp.groups[best])) best = i;
  }
  return best;
}

/// Takes the group out of the list and makes it the running one.
const Code* resume_group(WarpContext& warp, std::size_t index) {
  const Group& group = warp.groups[index];
  const Code* const pc = group.pc;
  warp.mask = group.mask;
  if (warp.frame != group.frame) use_frame(warp, group.frame);
  warp.groups.remove(index);
  return is_join(pc) ? pc + 1 : pc;
}

/// All groups wait: nobody can go on.
void all_wait(WarpContext& warp) {
  // Some stand at a barrier that the others do not come to, or all at warp operations that wait for
  // each other.
  const auto at_barrier = std::find_if(warp.groups.begin(), warp.groups.end(), [](const Group& g) {
    return g.waiting == Waiting::kMissing;
  });
  const bool is_divergent = at_barrier != warp.groups.end();
  const Group& stuck = is_divergent ? *at_barrier : warp.groups[0];
  warp.stop = Stop::kFault;
  warp.fault = {is_divergent ? FaultKind::kBarrierDivergence : FaultKind::kDeadlock,
                stuck.pc->line,
                first_lane_of(stuck.mask),
                0,
                0,
                false};
}

/// Code at which the warp goes on; null if it cannot, Warp::stop says why.
const Code* next_code(WarpContext& warp, const Code* after) {
  if (warp.is_together) {
    warp.is_together = false;
    return warp.resume;
  }
  if (warp.groups.empty()) {
    warp.stop = Stop::kExit;
    return nullptr;
  }
  const std::size_t index = next_group(warp, after);
  if (index != warp.groups.size()) return resume_group(warp, index);
  all_wait(warp);
  return nullptr;
}

/// The group that ran has come to a backward branch too many; true if other warps are to run.
bool ends_turn(WarpContext& warp) {
  warp.rounds_left = kQuantum;
  if (warp.groups.empty()) {  // other warps may be what it waits for
    warp.is_together = true;
    return true;
  }
  put_back(warp, Waiting::kNot);
  return warp.groups.size() == 1 || ++warp.turns % kQuantum == 0;
}

}  // namespace

void run_warp(WarpContext& warp) {
  const Code* after = nullptr;
  // Goes on through joins: a loop has one at its head.
  warp.rounds_left = kQuantum;
  while (const Code* pc = next_code(warp, after)) {
    warp.stop = Stop::kNone;
    while (pc != nullptr)
      pc = pc->run(warp, pc);
    after = nullptr;
    switch (warp.stop) {
      case Stop::kExit:
        break;  // these lanes are gone; others may be left
      case Stop::kJoin:
        put_back(warp, Waiting::kNot);
        break;
      case Stop::kWarpSync:
        put_back(warp, Waiting::kWarpSync);
        break;
      case Stop::kMissing:
        put_back(warp, Waiting::kMissing);
        break;
      case Stop::kYield:
        after = warp.resume;
        if (ends_turn(warp)) return;
        break;
      case Stop::kBarrier:  // which only whole warps come to
        warp.is_together = true;
        return;
      case Stop::kNone:
      case Stop::kFault:
        return;
    }
  }
}

}  // namespace kansoku::gpu::exec
