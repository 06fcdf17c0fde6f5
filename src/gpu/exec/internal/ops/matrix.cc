// SPDX-License-Identifier: Apache-2.0
// Operations of a warp on small matrices that lie spread over its lanes. Source of the layouts: PTX
// ISA manual, "Matrix Fragments for mma.m16n8k8", "... for mma.m16n8k16" and "ldmatrix".
#include "gpu/exec/internal/ops/matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "gpu/exec/internal/decode/compiled.h"
#include "gpu/exec/internal/ops/access.h"
#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/ops/float_ops.h"
#include "gpu/exec/internal/warp_context.h"

namespace kansoku::gpu::exec {
namespace {

/// These instructions are operations of the warp as a whole.
bool has_all_lanes(Warp& warp, const Code* code) {
  if (warp.mask == ~std::uint32_t{0}) return true;
  warp.stop = Stop::kFault;
  warp.fault = {FaultKind::kBadWarpMask, code->line, first_lane_of(warp.mask), 0, 0, false};
  return false;
}

/// An address register of every lane, with the offset added.
std::array<std::uint64_t, kLanes> addresses_of(Warp& warp, std::uint16_t slot,
                                               std::int32_t offset) {
  std::array<std::uint64_t, kLanes> addresses{};
  std::copy_n(in<std::uint64_t>(warp, slot), kLanes, addresses.begin());
  for (std::uint64_t& address : addresses)
    address += static_cast<std::uint64_t>(std::int64_t{offset});
  return addresses;
}

/// resolve_each for some of the lanes.
bool resolve_lanes(Warp& warp, const Code* code, std::uint32_t lanes, const WarpAccess& access,
                   const std::array<std::uint64_t, kLanes>& addresses,
                   std::array<std::byte*, kLanes>& out) {
  const std::uint32_t mask = std::exchange(warp.mask, lanes);
  const bool is_good = resolve_each(warp, code, access, addresses.data(), out.data());
  warp.mask = mask;
  return is_good;
}

/// Resolves the addresses of lanes of a copy that take less than the whole: the rest need not be
/// there, at the edge of an array, but the address must be aligned as if it were.
bool resolve_parts(Warp& warp, const Code* code, std::uint32_t lanes,
                   const std::array<std::uint64_t, kLanes>& addresses,
                   const std::array<std::uint32_t, kLanes>& taken,
                   std::array<std::byte*, kLanes>& out) {
  std::array<std::uint64_t, kLanes> ends{};
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const std::uint32_t i = first_lane_of(rest);
    ends[i] = addresses[i] + taken[i] - 1;
    if ((addresses[i] & (code->extra - 1)) == 0) continue;
    warp.stop = Stop::kFault;
    warp.fault = {FaultKind::kMisaligned, code->line, i, addresses[i], taken[i], false};
    return false;
  }
  // If the first and the last byte may be read, all between may: the gaps between allocations are
  // wider than a copy.
  const WarpAccess byte{MemorySpace::kGlobal, 1, false};
  return resolve_lanes(warp, code, lanes, byte, ends, out) &&
         resolve_lanes(warp, code, lanes, byte, addresses, out);
}

}  // namespace

const Code* run_mma(Warp& plain, const Code* code) {
  auto& warp = static_cast<WarpContext&>(plain);
  if (!has_all_lanes(warp, code)) return nullptr;
  const CompiledFunction::Matrix& site = warp.frame->function->matrices[code->extra];
  site.run(warp, site.slots);
  return code + 1;
}

const Code* run_movmatrix(Warp& warp, const Code* code) {
  if (!has_all_lanes(warp, code)) return nullptr;
  std::array<std::uint32_t, kLanes> before{};
  std::copy_n(in<std::uint32_t>(warp, code->a), kLanes, before.begin());
  std::uint32_t* const d = out<std::uint32_t>(warp, code->d);
  // Lane 4 row + pair holds the columns 2 pair and 2 pair + 1.
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t row = lane / 4, column = lane % 4 * 2, shift = row % 2 * 16;
    const std::uint32_t low = before[column * 4 + row / 2] >> shift & 0xffff;
    const std::uint32_t high = before[(column + 1) * 4 + row / 2] >> shift & 0xffff;
    d[lane] = low | high << 16;
  }
  return code + 1;
}

const Code* run_ldmatrix(Warp& warp, const Code* code) {
  const std::uint32_t count = code->extra & 7;
  const bool is_transposed = (code->extra & 8) != 0;
  // Generic addresses must lie in the window of shared memory.
  const std::uint64_t window = (code->extra & 16) != 0 ? kSharedWindowBegin : 0;
  if (!has_all_lanes(warp, code)) return nullptr;
  auto addresses = addresses_of(warp, code->a, code->offset);
  for (std::uint64_t& address : addresses)
    address -= window;
  // The first 8 * count lanes give the rows; the others' addresses do not count.
  for (std::uint32_t lane = 8 * count; lane < kLanes; ++lane)
    addresses[lane] = addresses[0];
  std::array<std::byte*, kLanes> places{};
  if (!resolve_each(warp, code, {MemorySpace::kShared, 16, false}, addresses.data(),
                    places.data())) {
    warp.fault.address += window;
    return nullptr;
  }
  const std::array<std::uint16_t, 4> slots{code->d, code->b, code->c,
                                           static_cast<std::uint16_t>(code->site)};
  for (std::uint32_t matrix = 0; matrix < count; ++matrix) {
    std::uint16_t rows[8][8];
    for (std::uint32_t row = 0; row < 8; ++row)
      std::memcpy(rows[row], places[matrix * 8 + row], sizeof rows[row]);
    std::uint32_t* const d = out<std::uint32_t>(warp, slots[matrix]);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t row = lane / 4, column = lane % 4 * 2;
      const std::uint32_t low = is_transposed ? rows[column][row] : rows[row][column];
      const std::uint32_t high = is_transposed ? rows[column + 1][row] : rows[row][column + 1];
      d[lane] = low | high << 16;
    }
  }
  return code + 1;
}

const Code* run_async_copy(Warp& warp, const Code* code) {
  const std::uint32_t bytes = code->extra;
  const auto to = addresses_of(warp, code->a, code->offset);
  const auto from = addresses_of(warp, code->b, static_cast<std::int32_t>(code->site));
  std::array<std::uint32_t, kLanes> taken{};
  taken.fill(bytes);
  if (code->c != 0xffff) std::copy_n(in<std::uint32_t>(warp, code->c), kLanes, taken.begin());
  std::array<std::byte*, kLanes> destinations{}, sources{};
  if (!resolve_each(warp, code, {MemorySpace::kShared, bytes, true}, to.data(),
                    destinations.data()))
    return nullptr;
  // Lanes that take nothing may have any source address.
  std::uint32_t whole = 0, parts = 0;
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t i = first_lane_of(rest);
    taken[i] = std::min(taken[i], bytes);
    if (taken[i] != 0) (taken[i] == bytes ? whole : parts) |= 1U << i;
  }
  if (!resolve_lanes(warp, code, whole, {MemorySpace::kGlobal, bytes, false}, from, sources) ||
      !resolve_parts(warp, code, parts, from, taken, sources))
    return nullptr;
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t i = first_lane_of(rest);
    if (taken[i] != 0) std::memcpy(destinations[i], sources[i], taken[i]);
    std::memset(destinations[i] + taken[i], 0, bytes - taken[i]);
  }
  return code + 1;
}

}  // namespace kansoku::gpu::exec
