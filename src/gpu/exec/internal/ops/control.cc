// SPDX-License-Identifier: Apache-2.0
// Branches, calls, and what the lanes of a warp do together.
#include "gpu/exec/internal/ops/control.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "common/time.h"
#include "gpu/exec/cost.h"
#include "gpu/exec/internal/observe/observer.h"
#include "gpu/exec/internal/warp_context.h"
#include "gpu/ptx/op.h"

namespace kansoku::gpu::exec {
namespace {

WarpContext& context(Warp& warp) {
  return static_cast<WarpContext&>(warp);
}

const Code* stop(Warp& warp, Stop why, const Code* resume) {
  warp.stop = why;
  context(warp).resume = resume;
  return nullptr;
}

std::uint32_t* words_at(Warp& warp, std::uint16_t slot) {
  return reinterpret_cast<std::uint32_t*>(warp.lanes + std::size_t{slot} * kSlotBytes);
}
std::uint64_t* wides_at(Warp& warp, std::uint16_t slot) {
  return reinterpret_cast<std::uint64_t*>(warp.lanes + std::size_t{slot} * kSlotBytes);
}

/// Lanes of a 32-bit source, written out if the register is held as an affine value.
const std::uint32_t* read_words(Warp& warp, std::uint16_t slot) {
  std::uint32_t* const lanes = words_at(warp, slot);
  if (warp.held[slot] == Held::kAffine) {
    const Affine& affine = warp.affine[slot];
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      lanes[i] = static_cast<std::uint32_t>(affine.base + affine.stride * (i & (warp.columns - 1)) +
                                            affine.row * (i >> warp.columns_log2));
    }
    warp.held[slot] = Held::kBoth;
  }
  return lanes;
}
const std::uint64_t* read_wides(Warp& warp, std::uint16_t slot) {
  std::uint64_t* const lanes = wides_at(warp, slot);
  if (warp.held[slot] == Held::kAffine) {
    const Affine& affine = warp.affine[slot];
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      lanes[i] = affine.base + affine.stride * (i & (warp.columns - 1)) +
                 affine.row * (i >> warp.columns_log2);
    }
    warp.held[slot] = Held::kBoth;
  }
  return lanes;
}

/// The value of the first active lane.
std::uint32_t first_word(Warp& warp, std::uint16_t slot) {
  const Affine& affine = warp.affine[slot];
  if (warp.held[slot] != Held::kValues && (affine.stride | affine.row) == 0)
    return static_cast<std::uint32_t>(affine.base);
  return read_words(warp, slot)[first_lane_of(warp.mask)];
}

/// The destination; lanes that are not active keep their value.
std::uint32_t* write_words(Warp& warp, std::uint16_t slot) {
  if (warp.held[slot] == Held::kAffine && warp.mask != warp.whole)
    static_cast<void>(read_words(warp, slot));
  warp.held[slot] = Held::kValues;
  return words_at(warp, slot);
}
std::uint64_t* write_wides(Warp& warp, std::uint16_t slot) {
  if (warp.held[slot] == Held::kAffine && warp.mask != warp.whole)
    static_cast<void>(read_wides(warp, slot));
  warp.held[slot] = Held::kValues;
  return wides_at(warp, slot);
}

template <class Body>
void for_lanes(std::uint32_t mask, const Body& body) {
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
    body(first_lane_of(rest));
}

void write_all(Warp& warp, std::uint16_t slot, std::uint32_t value) {
  std::uint32_t* const lanes = write_words(warp, slot);
  for_lanes(warp.mask, [&](std::uint32_t i) { lanes[i] = value; });
}

void write_bits(Warp& warp, std::uint32_t predicate, std::uint32_t bits) {
  std::uint32_t& value = warp.predicates[predicate];
  value = (value & ~warp.mask) | (bits & warp.mask);
}

/// Lanes of `lanes` that name the same members as the first of them.
std::uint32_t same_members(const std::uint32_t* masks, std::uint32_t lanes) {
  const std::uint32_t mask = masks[first_lane_of(lanes)];
  std::uint32_t same = 0;
  for_lanes(lanes, [&](std::uint32_t i) { same |= masks[i] == mask ? 1U << i : 0U; });
  return same;
}

/// The lanes that a .sync instruction names. PTX wants each lane to name itself, and all whom it
/// names to come with the same mask; parts of a warp may come together with a mask each.
struct Members {
  bool is_one{true};  // one mask for all
  bool is_valid{true};
  bool is_complete{true};  // all that are left have come
};
Members members_of(Warp& warp, std::uint16_t slot) {
  if (const Affine& same = warp.affine[slot];
      warp.held[slot] != Held::kValues && static_cast<std::uint32_t>(same.stride | same.row) == 0) {
    const auto mask = static_cast<std::uint32_t>(same.base);
    return {true, (warp.mask & ~mask) == 0, (mask & warp.whole & ~warp.mask) == 0};
  }
  const std::uint32_t* const masks = read_words(warp, slot);
  Members members;
  for (std::uint32_t left = warp.mask; left != 0;) {
    const std::uint32_t mask = masks[first_lane_of(left)], same = same_members(masks, left);
    members.is_one = members.is_one && same == warp.mask;
    members.is_valid = members.is_valid && (same & ~mask) == 0 && (mask & warp.mask & ~same) == 0;
    members.is_complete = members.is_complete && (mask & warp.whole & ~warp.mask) == 0;
    left &= ~same;
  }
  return members;
}

/// Runs `operation(warp, code)` once the lanes that the masks in `slot` name have come, for each
/// mask by itself; null and stopped if the lanes may not go on yet, or never.
template <class Operation>
const Code* run_members(Warp& warp, const Code* code, std::uint16_t slot, Operation operation) {
  const Members members = members_of(warp, slot);
  if (!members.is_valid) return fail(warp, FaultKind::kBadWarpMask, code);
  if (!members.is_complete) return stop(warp, Stop::kWarpSync, code);
  if (members.is_one) return operation(warp, code);
  const std::uint32_t all = warp.mask;
  std::array<std::uint32_t, kLanes> named{};  // the destination may be the masks' own register
  std::copy_n(read_words(warp, slot), kLanes, named.begin());
  const Code* next = nullptr;
  for (std::uint32_t left = all; left != 0; left &= ~warp.mask) {
    warp.mask = same_members(named.data(), left);
    next = operation(warp, code);
    if (next == nullptr) return nullptr;
  }
  warp.mask = all;
  return next;
}

}  // namespace

/// Point at which ways join: lets other groups of lanes come here first.
const Code* run_join(Warp& warp, const Code* code) {
  if (context(warp).groups.empty()) return code + 1;
  return stop(warp, Stop::kJoin, code);
}

/// d: predicate; extra: negated. The next code runs for the lanes where it holds.
const Code* run_guard(Warp& warp, const Code* code) {
  const std::uint32_t predicate = warp.predicates[code->d];
  const std::uint32_t chosen = warp.mask & (code->extra != 0 ? ~predicate : predicate);
  if (chosen == 0) return code + 2;
  if (chosen == warp.mask) return code + 1;
  const std::uint32_t mask = warp.mask;
  warp.mask = chosen;
  const Code* const next = (code + 1)->run(warp, code + 1);
  if (next == nullptr) {  // the chosen lanes wait or have ended; the others go on
    context(warp).groups.add(mask & ~chosen, code + 2, warp.frame, Waiting::kNot);
    return nullptr;
  }
  warp.mask = mask;
  return code + 2;
}

/// offset: to the target. Backward: a round of a loop.
const Code* run_branch(Warp& warp, const Code* code) {
  const Code* const target = code + code->offset;
  if (code->offset > 0 || --warp.rounds_left != 0) return target;
  return stop(warp, Stop::kYield, target);
}

/// d: predicate; extra: negated; offset: to the target.
const Code* run_branch_if(Warp& warp, const Code* code) {
  const std::uint32_t predicate = warp.predicates[code->d];
  const std::uint32_t taken = warp.mask & (code->extra != 0 ? ~predicate : predicate);
  if (taken == 0) return code + 1;
  if (taken == warp.mask) return run_branch(warp, code);
  context(warp).groups.add(warp.mask & ~taken, code + 1, warp.frame, Waiting::kNot);
  warp.mask = taken;
  const bool is_over = code->offset <= 0 && --warp.rounds_left == 0;
  return stop(warp, is_over ? Stop::kYield : Stop::kJoin, code + code->offset);
}

const Code* run_exit(Warp& warp, const Code* code) {
  warp.whole &= ~warp.mask;
  // Groups that wait for these lanes need not any longer.
  for (Group& group : context(warp).groups) {
    if (group.waiting == Waiting::kMissing && warp.block->observer != nullptr)
      warp.block->observer->went_around_barrier(warp, group.pc->line, code->line);
    if (group.waiting == Waiting::kWarpSync || group.waiting == Waiting::kMissing)
      group.waiting = Waiting::kNot;
  }
  warp.stop = Stop::kExit;
  return nullptr;
}

const Code* run_trap(Warp& warp, const Code* code) {
  return fail(warp, FaultKind::kTrap, code);
}

const Code* run_nothing(Warp& warp, const Code* code) {
  static_cast<void>(warp);
  return code + 1;
}

const Code* run_fence(Warp& warp, const Code* code) {
  static_cast<void>(warp);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return code + 1;
}

/// a: slot of the barrier's number, b: slot of the number of threads or 0xffff.
const Code* run_barrier(Warp& warp, const Code* code) {
  // Lanes that are somewhere else may still come, or end.
  if (warp.mask != warp.whole) return stop(warp, Stop::kMissing, code);
  warp.barrier = first_word(warp, code->a);
  if (warp.barrier >= kBarriers) return fail(warp, FaultKind::kNoSuchBarrier, code);
  warp.barrier_count = code->b == 0xffff ? 0 : first_word(warp, code->b);
  return stop(warp, Stop::kBarrier, code + 1);
}

/// As run_barrier, but goes on at once.
const Code* run_barrier_arrive(Warp& warp, const Code* code) {
  if (warp.mask != warp.whole) return stop(warp, Stop::kMissing, code);
  const std::uint32_t number = first_word(warp, code->a);
  if (number >= kBarriers) return fail(warp, FaultKind::kNoSuchBarrier, code);
  BlockState::Arrived& arrived = warp.block->arrived[number];
  arrived.threads += static_cast<std::uint32_t>(std::popcount(warp.mask));
  arrived.expected = first_word(warp, code->b);
  arrived.warps |= std::uint32_t{1} << warp.index;
  return code + 1;
}

/// As run_barrier; c: predicate that the lanes arrive with; extra: negated. The code behind it
/// writes the result.
const Code* run_barrier_vote(Warp& warp, const Code* code) {
  const std::uint32_t predicate = warp.predicates[code->c];
  const std::uint32_t votes = warp.mask & (code->extra != 0 ? ~predicate : predicate);
  const Code* const next = run_barrier(warp, code);
  warp.barrier_votes = static_cast<std::uint32_t>(std::popcount(votes));
  return next;
}

/// a: slot of the mask.
const Code* run_warp_barrier(Warp& warp, const Code* code) {
  return run_members(warp, code, code->a, [](Warp&, const Code* here) { return here + 1; });
}

namespace {

void write_thread_index(Warp& warp, std::uint16_t slot, std::size_t axis) {
  const auto& block = warp.block->launch->block;
  // Lines of the block fill the warp evenly: an affine value.
  const bool is_line =
      warp.columns < kLanes || block[0] % kLanes == 0 || (block[1] == 1 && block[2] == 1);
  const std::uint32_t lines = kLanes / warp.columns;
  const bool is_plane = lines == 1 || block[1] % lines == 0;
  if (warp.mask == warp.whole && is_line && is_plane) {
    const auto first = thread_of(warp, 0);
    const Affine affine{first[axis], axis == 0 ? 1U : 0U, axis == 1 ? 1U : 0U};
    warp.affine[slot] = affine;
    if (lines == 1) warp.affine[slot].row = 0;
    warp.held[slot] = Held::kAffine;
    return;
  }
  std::uint32_t* const lanes = write_words(warp, slot);
  for_lanes(warp.mask, [&](std::uint32_t i) { lanes[i] = thread_of(warp, i)[axis]; });
}

void write_uniform(Warp& warp, std::uint16_t slot, std::uint64_t value, bool is_wide) {
  if (warp.mask == warp.whole) {
    warp.affine[slot] = {value, 0, 0};
    warp.held[slot] = Held::kAffine;
  } else if (is_wide) {
    std::uint64_t* const lanes = write_wides(warp, slot);
    for_lanes(warp.mask, [&](std::uint32_t i) { lanes[i] = value; });
  } else {
    write_all(warp, slot, static_cast<std::uint32_t>(value));
  }
}

/// %globaltimer. All blocks of a launch begin at once: which of them waits for which is not known
/// while they run.
std::uint64_t time_ns(const Warp& warp) {
  const LaunchState& launch = *warp.block->launch;
  if (launch.costs != nullptr) {
    const std::uint64_t cycles = std::max(warp.cycles, warp.block->issue16 / 16);
    return launch.begin_ns + cycles * 1000 / launch.costs->clock_mhz;
  }
  if (launch.clock != nullptr)
    return static_cast<std::uint64_t>(launch.clock->now().time_since_epoch().count());
  return warp.executed;
}

std::uint32_t lane_mask(ptx::Special special, std::uint32_t lane) {
  const std::uint32_t self = 1U << lane, below = self - 1;
  switch (special) {
    case ptx::Special::kLanemaskEq:
      return self;
    case ptx::Special::kLanemaskLe:
      return self | below;
    case ptx::Special::kLanemaskLt:
      return below;
    case ptx::Special::kLanemaskGe:
      return ~below;
    default:
      return ~below & ~self;
  }
}

}  // namespace

/// d: destination; extra: which; c: 1 if the destination has 64 bits.
const Code* run_special(Warp& warp, const Code* code) {
  using ptx::Special;
  const auto special = static_cast<Special>(code->extra);
  const LaunchState& launch = *warp.block->launch;
  const auto uniform = [&](std::uint64_t value) {
    write_uniform(warp, code->d, value, code->c != 0);
    return code + 1;
  };
  switch (special) {
    case Special::kTidX:
      write_thread_index(warp, code->d, 0);
      return code + 1;
    case Special::kTidY:
      write_thread_index(warp, code->d, 1);
      return code + 1;
    case Special::kTidZ:
      write_thread_index(warp, code->d, 2);
      return code + 1;
    case Special::kNtidX:
    case Special::kNtidY:
    case Special::kNtidZ:
      return uniform(launch.block[code->extra - static_cast<std::uint32_t>(Special::kNtidX)]);
    case Special::kCtaidX:
      return uniform(warp.block->index[0]);
    case Special::kCtaidY:
      return uniform(warp.block->index[1]);
    case Special::kCtaidZ:
      return uniform(warp.block->index[2]);
    case Special::kNctaidX:
    case Special::kNctaidY:
    case Special::kNctaidZ:
      return uniform(launch.grid[code->extra - static_cast<std::uint32_t>(Special::kNctaidX)]);
    case Special::kWarpid:
      return uniform(warp.index);
    case Special::kNwarpid:
      return uniform((launch.block[0] * launch.block[1] * launch.block[2] + kLanes - 1) / kLanes);
    case Special::kSmid:
      return uniform(warp.block->number % launch.sm_count);
    case Special::kNsmid:
      return uniform(launch.sm_count);
    case Special::kGridid:
      return uniform(launch.grid_id);
    case Special::kEnvreg1:
      return uniform(launch.workspace & 0xffffffff);
    case Special::kEnvreg2:
      return uniform(launch.workspace >> 32);
    case Special::kWarpSize:
      return uniform(kLanes);
    case Special::kClock:
    case Special::kClock64:
    case Special::kClockHi:
      return uniform(warp.executed >> (special == Special::kClockHi ? 32 : 0));
    case Special::kGlobaltimer:
    case Special::kGlobaltimerLo:
    case Special::kGlobaltimerHi:
      return uniform(time_ns(warp) >> (special == Special::kGlobaltimerHi ? 32 : 0));
    case Special::kTotalSmemSize:
      return uniform(launch.total_shared_bytes);
    case Special::kDynamicSmemSize:
      return uniform(launch.dynamic_shared_bytes);
    default:
      break;
  }
  std::uint32_t* const lanes = write_words(warp, code->d);
  for_lanes(warp.mask, [&](std::uint32_t i) {
    lanes[i] = special == Special::kLaneid ? i : lane_mask(special, i);
  });
  return code + 1;
}

/// d: destination; a, b: sources; extra: the operation (0 and, 1 or, 2 xor, 3 move), 4: a negated,
/// 8: b negated, 16: the result negated.
const Code* run_predicate_logic(Warp& warp, const Code* code) {
  std::uint32_t a = warp.predicates[code->a], b = warp.predicates[code->b];
  if ((code->extra & 4) != 0) a = ~a;
  if ((code->extra & 8) != 0) b = ~b;
  std::uint32_t result = a;
  switch (code->extra & 3) {
    case 0:
      result = a & b;
      break;
    case 1:
      result = a | b;
      break;
    case 2:
      result = a ^ b;
      break;
    default:
      break;
  }
  write_bits(warp, code->d, (code->extra & 16) != 0 ? ~result : result);
  return code + 1;
}

namespace {

/// Source lane of a shuffle, and whether it lies within the segment. Source: PTX ISA manual, shfl.
struct ShuffleSource {
  std::uint32_t lane;
  bool is_inside;
};
ShuffleSource shuffle_source(std::uint32_t mode, std::uint32_t lane, std::uint32_t b,
                             std::uint32_t c) {
  const std::uint32_t clamp = c & 31, segment = c >> 8 & 31, value = b & 31;
  const std::uint32_t most = (lane & segment) | (clamp & ~segment);
  const std::uint32_t least = lane & segment;
  const auto from = static_cast<std::int32_t>(lane);
  const auto by = static_cast<std::int32_t>(value);
  switch (mode) {
    case 0:
      return {static_cast<std::uint32_t>(from - by), from - by >= static_cast<std::int32_t>(most)};
    case 1:
      return {lane + value, lane + value <= most};
    case 2:
      return {lane ^ value, (lane ^ value) <= most};
    default: {
      const std::uint32_t to = least | (value & ~segment);
      return {to, to <= most};
    }
  }
}

}  // namespace

namespace {
/// d, a, b, c: destination, value, lane, clamp; extra: mode (0 up, 1 down, 2 bfly, 3 idx), the
/// mask's slot from bit 2 on (14 bits), the second destination + 1 from bit 16 on.
const Code* shuffle_members(Warp& warp, const Code* code) {
  std::array<std::uint32_t, kLanes> before{};
  std::copy_n(read_words(warp, code->a), kLanes, before.begin());
  const std::uint32_t* const b = read_words(warp, code->b);
  const std::uint32_t* const c = read_words(warp, code->c);
  std::array<std::uint32_t, kLanes> after = before;
  std::uint32_t inside = 0;
  bool is_valid = true;
  for_lanes(warp.mask, [&](std::uint32_t i) {
    const ShuffleSource source = shuffle_source(code->extra & 3, i, b[i], c[i]);
    if (!source.is_inside) return;
    is_valid = is_valid && (warp.mask >> source.lane & 1) != 0;
    after[i] = before[source.lane & 31];
    inside |= 1U << i;
  });
  // The value of a lane that takes no part is not defined.
  if (!is_valid) return fail(warp, FaultKind::kBadWarpMask, code);
  std::uint32_t* const d = write_words(warp, code->d);
  for_lanes(warp.mask, [&](std::uint32_t i) { d[i] = after[i]; });
  if (const std::uint32_t second = code->extra >> 16; second != 0)
    write_bits(warp, second - 1, inside);
  return code + 1;
}
}  // namespace
const Code* run_shuffle(Warp& warp, const Code* code) {
  return run_members(warp, code, static_cast<std::uint16_t>(code->extra >> 2 & 0x3fff),
                     shuffle_members);
}

namespace {
/// d: predicate; a: source predicate; b: slot of the mask; extra: 0 all, 1 any, 2 uni, 4: negated.
const Code* vote_members(Warp& warp, const Code* code) {
  std::uint32_t bits = warp.predicates[code->a];
  if ((code->extra & 4) != 0) bits = ~bits;
  bits &= warp.mask;
  const bool is_all = bits == warp.mask, is_any = bits != 0;
  bool result = is_all;
  if ((code->extra & 3) == 1) result = is_any;
  if ((code->extra & 3) == 2) result = is_all || !is_any;
  write_bits(warp, code->d, result ? ~0U : 0U);
  return code + 1;
}
}  // namespace
const Code* run_vote(Warp& warp, const Code* code) {
  return run_members(warp, code, code->b, vote_members);
}

namespace {
/// d: destination; a: source predicate; b: slot of the mask; extra 4: negated.
const Code* ballot_members(Warp& warp, const Code* code) {
  std::uint32_t bits = warp.predicates[code->a];
  if ((code->extra & 4) != 0) bits = ~bits;
  write_uniform(warp, code->d, bits & warp.mask, false);
  return code + 1;
}
}  // namespace
const Code* run_ballot(Warp& warp, const Code* code) {
  return run_members(warp, code, code->b, ballot_members);
}

/// d: destination. How many lanes of the block arrived with a true predicate.
const Code* run_barrier_count(Warp& warp, const Code* code) {
  write_uniform(warp, code->d, warp.barrier_true, false);
  return code + 1;
}

/// d: predicate; extra: 1 all were true, 0 one was.
const Code* run_barrier_test(Warp& warp, const Code* code) {
  const bool is_true =
      code->extra != 0 ? warp.barrier_true == warp.barrier_arrived : warp.barrier_true != 0;
  std::uint32_t& predicate = warp.predicates[code->d];
  predicate = is_true ? predicate | warp.mask : predicate & ~warp.mask;
  return code + 1;
}

const Code* run_activemask(Warp& warp, const Code* code) {
  write_uniform(warp, code->d, warp.mask, false);
  return code + 1;
}

namespace {
/// d: destination; a: value; b: slot of the mask; extra: 1 all, 2: 64 bits, the second destination
/// + 1 from bit 16 on.
const Code* match_members(Warp& warp, const Code* code) {
  std::array<std::uint64_t, kLanes> values{};
  if ((code->extra & 2) != 0) {
    std::copy_n(read_wides(warp, code->a), kLanes, values.begin());
  } else {
    std::copy_n(read_words(warp, code->a), kLanes, values.begin());
  }
  std::array<std::uint32_t, kLanes> equal{};
  for_lanes(warp.mask, [&](std::uint32_t i) {
    for_lanes(warp.mask, [&](std::uint32_t k) {
      if (values[i] == values[k]) equal[i] |= 1U << k;
    });
  });
  const bool is_all = equal[first_lane_of(warp.mask)] == warp.mask;
  std::uint32_t* const d = write_words(warp, code->d);
  const bool wants_all = (code->extra & 1) != 0;
  for_lanes(warp.mask, [&](std::uint32_t i) { d[i] = wants_all && !is_all ? 0 : equal[i]; });
  if (const std::uint32_t second = code->extra >> 16; second != 0)
    write_bits(warp, second - 1, is_all ? ~0U : 0U);
  return code + 1;
}
}  // namespace
const Code* run_match(Warp& warp, const Code* code) {
  return run_members(warp, code, code->b, match_members);
}

namespace {
/// d: destination; a: value; b: slot of the mask; extra: 0 add, 1 min.u, 2 max.u, 3 min.s, 4 max.s,
/// 5 and, 6 or, 7 xor.
const Code* redux_members(Warp& warp, const Code* code) {
  const std::uint32_t* const a = read_words(warp, code->a);
  std::uint32_t result = a[first_lane_of(warp.mask)];
  for_lanes(warp.mask & (warp.mask - 1), [&](std::uint32_t i) {
    const auto x = static_cast<std::int32_t>(result), y = static_cast<std::int32_t>(a[i]);
    switch (code->extra) {
      case 0:
        result += a[i];
        break;
      case 1:
        result = std::min(result, a[i]);
        break;
      case 2:
        result = std::max(result, a[i]);
        break;
      case 3:
        result = static_cast<std::uint32_t>(std::min(x, y));
        break;
      case 4:
        result = static_cast<std::uint32_t>(std::max(x, y));
        break;
      case 5:
        result &= a[i];
        break;
      case 6:
        result |= a[i];
        break;
      default:
        result ^= a[i];
        break;
    }
  });
  write_uniform(warp, code->d, result, false);
  return code + 1;
}
}  // namespace
const Code* run_redux(Warp& warp, const Code* code) {
  return run_members(warp, code, code->b, redux_members);
}

void use_frame(WarpContext& warp, Frame* frame) {
  warp.frame = frame;
  warp.lanes = frame->lanes;
  warp.held = frame->held;
  warp.affine = frame->affine;
  warp.predicates = frame->predicates;
}

}  // namespace kansoku::gpu::exec
