// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/observe/hazards.h"

#include <algorithm>

#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/observation.h"

namespace kansoku::gpu::exec {
namespace {

template <class Body>
void for_bits(std::uint32_t bits, const Body& body) {
  for (; bits != 0; bits &= bits - 1)
    body(first_lane_of(bits));
}

/// Those who meet know from now on what any of them knew, and that they met: clocks[i][i] is i's
/// own.
template <class Clocks>
void meet(Clocks& clocks, std::uint32_t members) {
  std::array<std::uint32_t, 32> joined{};
  for_bits(members, [&](std::uint32_t i) {
    for (std::uint32_t j = 0; j < joined.size(); ++j)
      joined[j] = std::max(joined[j], clocks[i][j]);
  });
  for_bits(members, [&](std::uint32_t i) { joined[i] = clocks[i][i] + 1; });
  for_bits(members, [&](std::uint32_t i) {
    for (std::uint32_t j = 0; j < joined.size(); ++j)
      clocks[i][j] = joined[j];
  });
}

}  // namespace

SharedHazards::SharedHazards(std::uint32_t shared_bytes)
    : cells_(shared_bytes), lanes_known_(std::make_unique<std::array<Lanes, kWarpsMax>>()) {}

void SharedHazards::begin_block(std::uint64_t number) {
  block_ = number;
  ++serial_;
  ++epoch_;
}

void SharedHazards::block_barrier(std::uint32_t warps, bool is_everybody) {
  if (is_everybody) {
    ++epoch_;
    return;
  }
  meet(known_, warps);
  for_bits(warps, [&](std::uint32_t warp) { meet((*lanes_known_)[warp], ~std::uint32_t{0}); });
}

void SharedHazards::warp_barrier(std::uint32_t warp, std::uint32_t lanes) {
  meet((*lanes_known_)[warp], lanes);
}

bool SharedHazards::is_ordered(const Mark& mark, const SharedAccess& access) const {
  if (mark.epoch != epoch_ || mark.instruction == access.instruction) return true;
  if (mark.warp != access.warp) return known_[access.warp][mark.warp] > mark.warp_clock;
  return mark.lane == access.lane ||
         (*lanes_known_)[access.warp][access.lane][mark.lane] > mark.lane_clock;
}

SharedHazards::Mark SharedHazards::mark_of(const SharedAccess& access) const {
  Mark mark;
  mark.epoch = epoch_;
  mark.instruction = access.instruction;
  mark.warp_clock = known_[access.warp][access.warp];
  mark.lane_clock = (*lanes_known_)[access.warp][access.lane][access.lane];
  mark.line = access.line;
  mark.warp = static_cast<std::uint8_t>(access.warp);
  mark.lane = static_cast<std::uint8_t>(access.lane);
  mark.is_strong = access.is_strong;
  return mark;
}

void SharedHazards::add(const Hazard& hazard) {
  ++count_;
  const bool is_known = std::any_of(hazards_.begin(), hazards_.end(), [&](const Hazard& h) {
    return h.kind == hazard.kind && h.access.line == hazard.access.line &&
           h.other.line == hazard.other.line;
  });
  if (!is_known && hazards_.size() < Observations::kHazardsMax) hazards_.push_back(hazard);
}

void SharedHazards::race(const SharedAccess& access, const Mark& other, bool is_other_store) {
  SharedAccess before;
  before.warp = other.warp;
  before.lane = other.lane;
  before.line = other.line;
  before.is_store = is_other_store;
  add({FaultKind::kSharedRace, access, before, block_});
}

void SharedHazards::collision(const SharedAccess& access, std::uint32_t other_lane) {
  SharedAccess other = access;
  other.lane = other_lane;
  add({FaultKind::kSharedRace, access, other, block_});
}

/// True if there was something wrong with this byte; said only once an access (`is_known`: it was).
bool SharedHazards::touch(Cell& cell, const SharedAccess& access, bool is_known) {
  const auto conflicts = [&](const Mark& mark) {
    return !is_known && !is_ordered(mark, access) && !(mark.is_strong && access.is_strong);
  };
  if (!access.is_store && cell.written_in != serial_ && !is_known) {
    add({FaultKind::kUninitialisedShared, access, {}, block_});
    is_known = true;
  }
  if (conflicts(cell.store)) {
    race(access, cell.store, true);
    is_known = true;
  }
  const Mark mark = mark_of(access);
  if (!access.is_store) {
    Mark& last = cell.loads[0];
    if (last.epoch == epoch_ && (last.warp != mark.warp || last.lane != mark.lane))
      cell.loads[1] = last;
    last = mark;
    return is_known;
  }
  for (const Mark& load : cell.loads) {
    if (!conflicts(load)) continue;
    race(access, load, false);
    is_known = true;
  }
  cell.store = mark;
  cell.written_in = serial_;
  return is_known;
}

void SharedHazards::access(const SharedAccess& access) {
  bool is_known = false;
  for (std::uint32_t i = 0; i < access.bytes && access.offset + i < cells_.size(); ++i)
    is_known = touch(cells_[access.offset + i], access, is_known);
}

}  // namespace kansoku::gpu::exec
