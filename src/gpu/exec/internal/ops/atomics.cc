// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/ops/atomics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "gpu/exec/internal/ops/access.h"
#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/ops/float_ops.h"

namespace kansoku::gpu::exec {
namespace {

using ptx::Suffix;
using ptx::Type;

/// Changes one place and gives what was there. Other blocks may run at the same time, unless the
/// place is `own`: shared memory, whose block one thread runs.
template <class Bits, bool own, class Change>
std::uint64_t change(std::byte* place, const Change& next) {
  auto* const word = reinterpret_cast<Bits*>(place);
  if constexpr (own) {
    const Bits before = *word;
    *word = next(before);
    return before;
  }
  Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, next(old), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

using Apply = std::uint64_t (*)(std::byte* place, std::uint64_t b, std::uint64_t c);

template <class Bits, class Value, class F, bool own>
std::uint64_t combine(std::byte* place, std::uint64_t b, std::uint64_t) {
  const Value operand = from_lane<Value>(static_cast<Container<Value>>(b));
  return change<Bits, own>(place, [operand](Bits old) {
    const Value value = from_lane<Value>(static_cast<Container<Value>>(old));
    return static_cast<Bits>(to_lane<Value>(F::apply(value, operand)));
  });
}
template <class Bits, bool own>
std::uint64_t exchange(std::byte* place, std::uint64_t b, std::uint64_t) {
  return change<Bits, own>(place, [b](Bits) { return static_cast<Bits>(b); });
}
template <class Bits, bool own>
std::uint64_t compare_and_swap(std::byte* place, std::uint64_t b, std::uint64_t c) {
  return change<Bits, own>(
      place, [b, c](Bits old) { return old == static_cast<Bits>(b) ? static_cast<Bits>(c) : old; });
}
struct Inc {
  static std::uint32_t apply(std::uint32_t old, std::uint32_t bound) {
    return old >= bound ? 0 : old + 1;
  }
};
struct Dec {
  static std::uint32_t apply(std::uint32_t old, std::uint32_t bound) {
    return old == 0 || old > bound ? bound : old - 1;
  }
};

struct Row {
  Suffix operation;
  Type type;
  Apply apply;
  Apply apply_own;  // to shared memory
};

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

constexpr std::array kAtomicRows{
    Row{Suffix::kAdd, Type::kU32, combine<U32, U32, Add<U32>, false>,
        combine<U32, U32, Add<U32>, true>},
    Row{Suffix::kAdd, Type::kS32, combine<U32, U32, Add<U32>, false>,
        combine<U32, U32, Add<U32>, true>},
    Row{Suffix::kAdd, Type::kU64, combine<U64, U64, Add<U64>, false>,
        combine<U64, U64, Add<U64>, true>},
    Row{Suffix::kAdd, Type::kS64, combine<U64, U64, Add<U64>, false>,
        combine<U64, U64, Add<U64>, true>},
    Row{Suffix::kAdd, Type::kF32, combine<U32, float, FBinary<float, FAdd<float>>, false>,
        combine<U32, float, FBinary<float, FAdd<float>>, true>},
    Row{Suffix::kAdd, Type::kF64, combine<U64, double, FBinary<double, FAdd<double>>, false>,
        combine<U64, double, FBinary<double, FAdd<double>>, true>},
    Row{Suffix::kAdd, Type::kF16, combine<std::uint16_t, Half, HBinary<Half, FAdd<float>>, false>,
        combine<std::uint16_t, Half, HBinary<Half, FAdd<float>>, true>},
    Row{Suffix::kAdd, Type::kBf16,
        combine<std::uint16_t, BFloat, HBinary<BFloat, FAdd<float>>, false>,
        combine<std::uint16_t, BFloat, HBinary<BFloat, FAdd<float>>, true>},
    Row{Suffix::kAdd, Type::kF16x2,
        combine<U32, U32, PairBinary<HBinary<Half, FAdd<float>>>, false>,
        combine<U32, U32, PairBinary<HBinary<Half, FAdd<float>>>, true>},
    Row{Suffix::kAdd, Type::kBf16x2,
        combine<U32, U32, PairBinary<HBinary<BFloat, FAdd<float>>>, false>,
        combine<U32, U32, PairBinary<HBinary<BFloat, FAdd<float>>>, true>},
    Row{Suffix::kMin, Type::kU32, combine<U32, U32, Min<U32>, false>,
        combine<U32, U32, Min<U32>, true>},
    Row{Suffix::kMin, Type::kS32, combine<U32, S32, Min<S32>, false>,
        combine<U32, S32, Min<S32>, true>},
    Row{Suffix::kMin, Type::kU64, combine<U64, U64, Min<U64>, false>,
        combine<U64, U64, Min<U64>, true>},
    Row{Suffix::kMin, Type::kS64, combine<U64, S64, Min<S64>, false>,
        combine<U64, S64, Min<S64>, true>},
    Row{Suffix::kMax, Type::kU32, combine<U32, U32, Max<U32>, false>,
        combine<U32, U32, Max<U32>, true>},
    Row{Suffix::kMax, Type::kS32, combine<U32, S32, Max<S32>, false>,
        combine<U32, S32, Max<S32>, true>},
    Row{Suffix::kMax, Type::kU64, combine<U64, U64, Max<U64>, false>,
        combine<U64, U64, Max<U64>, true>},
    Row{Suffix::kMax, Type::kS64, combine<U64, S64, Max<S64>, false>,
        combine<U64, S64, Max<S64>, true>},
    Row{Suffix::kInc, Type::kU32, combine<U32, U32, Inc, false>, combine<U32, U32, Inc, true>},
    Row{Suffix::kDec, Type::kU32, combine<U32, U32, Dec, false>, combine<U32, U32, Dec, true>},
    Row{Suffix::kAnd, Type::kB32, combine<U32, U32, And<U32>, false>,
        combine<U32, U32, And<U32>, true>},
    Row{Suffix::kAnd, Type::kB64, combine<U64, U64, And<U64>, false>,
        combine<U64, U64, And<U64>, true>},
    Row{Suffix::kOr, Type::kB32, combine<U32, U32, Or<U32>, false>,
        combine<U32, U32, Or<U32>, true>},
    Row{Suffix::kOr, Type::kB64, combine<U64, U64, Or<U64>, false>,
        combine<U64, U64, Or<U64>, true>},
    Row{Suffix::kXor, Type::kB32, combine<U32, U32, Xor<U32>, false>,
        combine<U32, U32, Xor<U32>, true>},
    Row{Suffix::kXor, Type::kB64, combine<U64, U64, Xor<U64>, false>,
        combine<U64, U64, Xor<U64>, true>},
    Row{Suffix::kExch, Type::kB32, exchange<U32, false>, exchange<U32, true>},
    Row{Suffix::kExch, Type::kB64, exchange<U64, false>, exchange<U64, true>},
    Row{Suffix::kCas, Type::kB16, compare_and_swap<std::uint16_t, false>,
        compare_and_swap<std::uint16_t, true>},
    Row{Suffix::kCas, Type::kB32, compare_and_swap<U32, false>, compare_and_swap<U32, true>},
    Row{Suffix::kCas, Type::kB64, compare_and_swap<U64, false>, compare_and_swap<U64, true>},
};

constexpr std::uint32_t kSpaceShift = 8, kResultBit = 1U << 12;

MemorySpace memory_space(std::uint32_t index) {
  switch (static_cast<ptx::Space>(index >> kSpaceShift & 7)) {
    case ptx::Space::kGlobal:
      return MemorySpace::kGlobal;
    case ptx::Space::kShared:
      return MemorySpace::kShared;
    default:
      return MemorySpace::kGeneric;
  }
}

/// False if a lane's address lies outside or is misaligned: resolve_each then says which.
bool resolve_shared(const Warp& warp, std::uint32_t bytes, const std::uint64_t* addresses,
                    std::byte** out) {
  const std::uint64_t end = warp.block->launch->total_shared_bytes;
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t i = first_lane_of(rest);
    if ((addresses[i] & (bytes - 1)) != 0 || addresses[i] > end || bytes > end - addresses[i])
      return false;
    out[i] = warp.block->shared + addresses[i];
  }
  return true;
}

}  // namespace

bool atomic_operation(Suffix suffix) {
  return std::any_of(kAtomicRows.begin(), kAtomicRows.end(),
                     [&](const Row& row) { return row.operation == suffix; });
}

std::optional<std::uint32_t> atomic_index(const AtomicForm& form) {
  if (form.space != ptx::Space::kGeneric && form.space != ptx::Space::kGlobal &&
      form.space != ptx::Space::kShared)
    return std::nullopt;
  for (std::uint32_t i = 0; i < kAtomicRows.size(); ++i) {
    if (kAtomicRows[i].operation != form.operation || kAtomicRows[i].type != form.type) continue;
    return i | static_cast<std::uint32_t>(form.space) << kSpaceShift |
           (form.has_result ? kResultBit : 0);
  }
  return std::nullopt;
}

const Code* run_atomic(Warp& warp, const Code* code) {
  const Row& row = kAtomicRows[code->extra & 0xff];
  const bool wide = ptx::bits_of(row.type) == 64;
  const std::uint64_t* const registers = in<std::uint64_t>(warp, code->a);
  std::array<std::uint64_t, kLanes> addresses{}, b{}, c{}, old{};
  for (std::uint32_t i = 0; i < kLanes; ++i)
    addresses[i] =
        registers[i] + static_cast<std::uint64_t>(static_cast<std::int64_t>(code->offset));
  if (wide) {
    std::copy_n(in<std::uint64_t>(warp, code->b), kLanes, b.begin());
    std::copy_n(in<std::uint64_t>(warp, code->c), kLanes, c.begin());
  } else {
    std::copy_n(in<std::uint32_t>(warp, code->b), kLanes, b.begin());
    std::copy_n(in<std::uint32_t>(warp, code->c), kLanes, c.begin());
  }
  std::array<std::byte*, kLanes> places{};
  const WarpAccess access{memory_space(code->extra), ptx::bytes_of(row.type), true};
  const bool is_own = access.space == MemorySpace::kShared;
  if (!(is_own && resolve_shared(warp, access.bytes, addresses.data(), places.data())) &&
      !resolve_each(warp, code, access, addresses.data(), places.data()))
    return nullptr;
  const Apply apply = is_own ? row.apply_own : row.apply;
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t i = first_lane_of(rest);
    old[i] = apply(places[i], b[i], c[i]);
  }
  if ((code->extra & kResultBit) == 0) return code + 1;
  if (wide) {
    write_lanes<std::uint64_t>(warp, code->d, [&](std::uint32_t i) { return old[i]; });
  } else {
    write_lanes<std::uint32_t>(warp, code->d,
                               [&](std::uint32_t i) { return static_cast<std::uint32_t>(old[i]); });
  }
  return code + 1;
}

}  // namespace kansoku::gpu::exec
