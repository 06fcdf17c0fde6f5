// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shuffles of whole warps, and the parts of a register. Internal linkage for the reason given in
// lane_ops.h.

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "gpu/exec/internal/ops/lane_ops.h"

namespace kansoku::gpu::exec {

/// In control.cc: the same for any group of lanes.
const Code* run_shuffle(Warp& warp, const Code* code);

namespace {  // NOLINT(google-build-namespaces)

/// How run_shuffle reads its Code.
struct ShuffleCode {
  static constexpr std::uint32_t kModeMask = 3, kMembersShift = 2, kMembersMask = 0x3fff;
  static constexpr std::uint32_t kSecondShift = 16;
};

/// Lane i takes lane from[i]; `inside` by lane: ~0 if the wanted lane is in the segment, else it
/// takes its own.
template <std::uint32_t mode>
[[gnu::always_inline]] inline void shuffle_sources(const std::uint32_t* b, const std::uint32_t* c,
                                                   std::uint32_t* from, std::uint32_t* inside) {
  LANE_LOOP {
    const std::uint32_t clamp = c[i] & 31, segment = c[i] >> 8 & 31, value = b[i] & 31;
    const std::uint32_t most = (i & segment) | (clamp & ~segment);
    std::uint32_t lane = 0;
    bool is_inside = false;
    if constexpr (mode == 0) {
      lane = i - value;
      is_inside = static_cast<std::int32_t>(lane) >= static_cast<std::int32_t>(most);
    } else {
      lane = mode == 1 ? i + value : mode == 2 ? i ^ value : (i & segment) | (value & ~segment);
      is_inside = lane <= most;
    }
    from[i] = is_inside ? lane & 31 : i;
    inside[i] = is_inside ? ~0U : 0U;
  }
}

/// Lane i of the result is lane from[i] of a; all aligned to 64 bytes. The result may lie in a.
[[gnu::always_inline]] inline void permute_lanes(const std::uint32_t* a, const std::uint32_t* from,
                                                 std::uint32_t* result) {
#ifdef __AVX512F__
  const __m512i low = _mm512_load_si512(a), high = _mm512_load_si512(a + 16);
  for (std::uint32_t i = 0; i < kLanes; i += 16)
    _mm512_store_si512(result + i,
                       _mm512_permutex2var_epi32(low, _mm512_load_si512(from + i), high));
#else
  alignas(64) std::uint32_t values[kLanes];
  LANE_LOOP values[i] = a[from[i]];
  LANE_LOOP result[i] = values[i];
#endif
}

/// shfl.sync of all 32 lanes; no source is stale.
template <std::uint32_t mode>
[[gnu::always_inline]] inline void shuffle_all(Warp& warp, const Code* code) {
  alignas(64) std::uint32_t from[kLanes], inside[kLanes];
  shuffle_sources<mode>(lanes_at<const std::uint32_t>(warp, code->b),
                        lanes_at<const std::uint32_t>(warp, code->c), from, inside);
  warp.held[code->d] = Held::kValues;
  permute_lanes(lanes_at<const std::uint32_t>(warp, code->a), from,
                lanes_at<std::uint32_t>(warp, code->d));
  const std::uint32_t second = code->extra >> ShuffleCode::kSecondShift;
  if (second == 0) return;
  std::uint32_t bits = 0;
  LANE_LOOP bits |= (inside[i] & 1) << i;
  write_predicate(warp, static_cast<std::uint16_t>(second - 1), bits);
}

/// shfl.sync where all 32 lanes are here and all are named: nobody has to be waited for, every
/// source takes part.
inline const Code* shuffle(Warp& warp, const Code* code) {
  using Word = std::uint32_t;
  const auto members = static_cast<std::uint16_t>(code->extra >> ShuffleCode::kMembersShift &
                                                  ShuffleCode::kMembersMask);
  if (warp.mask != ~0U || !is_uniform<Word>(warp, members) ||
      uniform_value<Word>(warp, members) != ~0U)
    return run_shuffle(warp, code);
  if (is_stale(warp, code->a) || is_stale(warp, code->b) || is_stale(warp, code->c))
    return refresh<Word, Word, Word, Word>(warp, code, shuffle);
  switch (code->extra & ShuffleCode::kModeMask) {
    case 0:
      shuffle_all<0>(warp, code);
      break;
    case 1:
      shuffle_all<1>(warp, code);
      break;
    case 2:
      shuffle_all<2>(warp, code);
      break;
    default:
      shuffle_all<3>(warp, code);
      break;
  }
  return code + 1;
}

/// Slots of the parts of a register, lowest first.
struct PartSlots {
  std::uint16_t slot[4];
};
inline PartSlots parts_of(const Code* code, std::uint16_t first) {
  return {{first, code->b, code->c, static_cast<std::uint16_t>(code->offset)}};
}
template <std::uint32_t part_bits, std::uint32_t count>
using Whole = std::conditional_t<(part_bits * count > 32), std::uint64_t, std::uint32_t>;
template <std::uint32_t part_bits>
inline constexpr std::uint32_t kPartMask = part_bits == 32 ? ~0U : (1U << (part_bits % 32)) - 1;

/// mov.b32 d, {a, b}: a, b, c and the offset are the parts' slots.
template <std::uint32_t part_bits, std::uint32_t count>
const Code* pack(Warp& warp, const Code* code) {
  using C = Whole<part_bits, count>;
  constexpr C kMask = kPartMask<part_bits>;
  const PartSlots slots = parts_of(code, code->a);
  bool is_same = is_whole(warp);
  for (std::uint32_t k = 0; k < count; ++k)
    is_same = is_same && is_uniform<std::uint32_t>(warp, slots.slot[k]);
  if (is_same) {
    C value = 0;
    for (std::uint32_t k = 0; k < count; ++k)
      value |= (static_cast<C>(warp.affine[slots.slot[k]].base) & kMask) << (k * part_bits);
    set_uniform(warp, code->d, value);
    return code + 1;
  }
  const std::uint32_t* parts[count];
  for (std::uint32_t k = 0; k < count; ++k)
    parts[k] = in<std::uint32_t>(warp, slots.slot[k]);
  write_lanes<C>(warp, code->d, [&parts](std::uint32_t i) {
    C value = 0;
    for (std::uint32_t k = 0; k < count; ++k)
      value |= (static_cast<C>(parts[k][i]) & kMask) << (k * part_bits);
    return value;
  });
  return code + 1;
}

/// mov.b32 {d, b}, a: d, b, c and the offset are the parts' slots.
template <std::uint32_t part_bits, std::uint32_t count>
const Code* unpack(Warp& warp, const Code* code) {
  using C = Whole<part_bits, count>;
  const PartSlots slots = parts_of(code, code->d);
  if (is_whole(warp) && is_uniform<C>(warp, code->a)) {
    const auto value = static_cast<C>(warp.affine[code->a].base);
    for (std::uint32_t k = 0; k < count; ++k)
      set_uniform(warp, slots.slot[k], value >> (k * part_bits) & kPartMask<part_bits>);
    return code + 1;
  }
  // A part may be written where the whole is.
  alignas(64) C values[kLanes];
  const C* const a = in<C>(warp, code->a);
  LANE_LOOP values[i] = a[i];
  for (std::uint32_t k = 0; k < count; ++k) {
    write_lanes<std::uint32_t>(warp, slots.slot[k], [&values, k](std::uint32_t i) {
      return static_cast<std::uint32_t>(values[i] >> (k * part_bits)) & kPartMask<part_bits>;
    });
  }
  return code + 1;
}

}  // namespace
}  // namespace kansoku::gpu::exec
