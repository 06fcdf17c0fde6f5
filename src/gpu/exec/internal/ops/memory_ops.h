// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loads and stores of a warp, every address checked. Internal linkage for the reason given in
// lane_ops.h.

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "gpu/exec/internal/decode/forms_list.h"
#include "gpu/exec/internal/ops/access.h"

namespace kansoku::gpu::exec {

namespace {  // NOLINT(google-build-namespaces)

/// Places of the lanes of an access: base + stride * column + row * line, or apart.
struct Places {
  std::byte* base{nullptr};
  std::int64_t stride{0}, row{0};
  std::uint32_t columns_log2{5};
  bool is_affine{false};
  std::byte* each[kLanes];
};

inline std::uint32_t first_lane(std::uint32_t mask) {
  return static_cast<std::uint32_t>(__builtin_ctz(mask));
}

// Kernels and the host may race for memory, as on a device: that is the program's affair, and no
// race of ours.
#ifdef __SANITIZE_THREAD__
#define KANSOKU_GUEST_ACCESS [[gnu::no_sanitize_thread, gnu::noinline]]
#else
#define KANSOKU_GUEST_ACCESS
#endif

template <class T>
KANSOKU_GUEST_ACCESS inline T load_from(const std::byte* place) {
  T value;
  __builtin_memcpy(&value, place, sizeof value);
  return value;
}
template <class T>
KANSOKU_GUEST_ACCESS inline void store_to(std::byte* place, T value) {
  __builtin_memcpy(place, &value, sizeof value);
}

/// Addresses of a space that may be accessed, as far as that is known without a search, and the
/// host address of address 0.
struct NearRange {
  U64 begin{0}, end{0};
  std::uintptr_t host{0};
};
template <MemorySpace space>
inline NearRange near_range(const Warp& warp, const Code* code) {
  const LaunchState& launch = *warp.block->launch;
  if constexpr (space == MemorySpace::kShared) {
    return {0, launch.total_shared_bytes, reinterpret_cast<std::uintptr_t>(warp.block->shared)};
  } else if constexpr (space == MemorySpace::kParam) {
    return {0, launch.param_bytes, reinterpret_cast<std::uintptr_t>(launch.params)};
  } else if constexpr (space == MemorySpace::kLocal) {
    return {};  // each lane has its own
  } else {
    // The windows of generic addresses lie outside of all ranges.
    const AddressRange& last = warp.block->range_cache[code->site];
    return {last.begin, last.end, 0};
  }
}

/// The host address of address 0 of a space, if all of [lo, hi) may be accessed.
template <MemorySpace space>
inline bool linear_base(Warp& warp, const Code* code, std::uint64_t lo, std::uint64_t hi,
                        std::uintptr_t& base) {
  if (hi < lo) return false;
  const NearRange near = near_range<space>(warp, code);
  base = near.host;
  if (lo >= near.begin && hi <= near.end) return true;
  if constexpr (space == MemorySpace::kGlobal || space == MemorySpace::kGeneric ||
                space == MemorySpace::kConst)
    return find_range(warp, code, lo, hi);
  return false;
}

/// The one accessible place that all lanes access; null: they do not, or it takes a search.
template <MemorySpace space>
[[gnu::always_inline]] inline const std::byte* uniform_place(const Warp& warp, const Code* code,
                                                             std::uint32_t bytes) {
  if (!is_affine(warp, code->a)) return nullptr;
  const Affine& address = warp.affine[code->a];
  if ((address.stride | address.row) != 0 || !is_whole(warp)) return nullptr;
  const U64 base = address.base + static_cast<U64>(static_cast<S64>(code->offset));
  const NearRange near = near_range<space>(warp, code);
  const bool is_inside = base >= near.begin && base < near.end && near.end - base >= bytes;
  if ((base & (bytes - 1)) != 0 || !is_inside) return nullptr;
  return reinterpret_cast<const std::byte*>(near.host + base);
}

/// True if all active lanes access the memory of near_range, aligned.
inline bool are_near(Warp& warp, const NearRange& near, std::uint32_t bytes, const U64* addresses) {
  if (near.end - near.begin < bytes) return false;
  const U64 begin = near.begin, most = near.end - begin - bytes, low = bytes - 1;
  U64 wrong = 0;
  if (warp.mask == ~std::uint32_t{0}) {
    LANE_LOOP wrong |= (addresses[i] & low) | static_cast<U64>(addresses[i] - begin > most);
  } else {
    const std::uint32_t* const active = active_lanes(warp);
    LANE_LOOP {
      const U64 here = (addresses[i] & low) | static_cast<U64>(addresses[i] - begin > most);
      wrong |= active[i] != 0 ? here : 0;
    }
  }
  return wrong == 0;
}

/// Only for whole warps, or where the mask does not matter because all lanes agree.
template <MemorySpace space>
[[gnu::always_inline]] inline bool resolve_affine(Warp& warp, const Code* code, std::uint32_t bytes,
                                                  Places& places) {
  const Affine& address = warp.affine[code->a];
  if (((address.base + static_cast<U64>(static_cast<S64>(code->offset))) | address.stride |
       address.row) &
      (bytes - 1))
    return false;
  if (warp.mask != ~std::uint32_t{0} && (address.stride | address.row) != 0) return false;
  const U64 base = address.base + static_cast<U64>(static_cast<S64>(code->offset));
  places.stride = static_cast<S64>(address.stride);
  places.row = static_cast<S64>(address.row);
  places.columns_log2 = warp.columns_log2;
  places.is_affine = true;
  if constexpr (space == MemorySpace::kLocal) {
    if ((address.stride | address.row) != 0 || base > warp.local_stride ||
        bytes > warp.local_stride - base)
      return false;
    places.base = warp.local + base;
    places.stride = warp.local_stride;
    places.row = static_cast<S64>(warp.local_stride) << warp.columns_log2;
    return true;
  }
  const S64 across = places.stride * (static_cast<S64>(warp.columns) - 1);
  const S64 down = places.row * (static_cast<S64>(kLanes >> warp.columns_log2) - 1);
  const U64 lo = base + static_cast<U64>((across < 0 ? across : 0) + (down < 0 ? down : 0));
  const U64 hi = base + static_cast<U64>((across > 0 ? across : 0) + (down > 0 ? down : 0)) + bytes;
  std::uintptr_t host = 0;
  if (!linear_base<space>(warp, code, lo, hi, host)) return false;
  places.base = reinterpret_cast<std::byte*>(host + base);
  return true;
}

template <MemorySpace space>
[[gnu::noinline]] inline bool resolve_lanes(Warp& warp, const Code* code, std::uint32_t bytes,
                                            bool is_store, Places& places) {
  places.is_affine = false;
  const U64* const registers = in<U64>(warp, code->a);
  const U64 offset = static_cast<U64>(static_cast<S64>(code->offset));
  alignas(64) U64 addresses[kLanes];
  LANE_LOOP addresses[i] = registers[i] + offset;
  if constexpr (space != MemorySpace::kLocal) {
    const NearRange near = near_range<space>(warp, code);
    if (are_near(warp, near, bytes, addresses)) {
      LANE_LOOP places.each[i] = reinterpret_cast<std::byte*>(near.host + addresses[i]);
      return true;
    }
    const U64 any = addresses[first_lane(warp.mask)];
    U64 lo = any, hi = any, bits = 0;
    if (warp.mask == ~std::uint32_t{0}) {
      LANE_LOOP {
        lo = addresses[i] < lo ? addresses[i] : lo;
        hi = addresses[i] > hi ? addresses[i] : hi;
        bits |= addresses[i];
      }
    } else {
      const std::uint32_t* const active = active_lanes(warp);
      LANE_LOOP {
        const U64 address = active[i] != 0 ? addresses[i] : any;
        lo = address < lo ? address : lo;
        hi = address > hi ? address : hi;
        bits |= address;
      }
    }
    std::uintptr_t host = 0;
    if ((bits & (bytes - 1)) == 0 && linear_base<space>(warp, code, lo, hi + bytes, host)) {
      LANE_LOOP places.each[i] = reinterpret_cast<std::byte*>(host + addresses[i]);
      return true;
    }
  }
  return resolve_each(warp, code, {space, bytes, is_store}, addresses, places.each);
}

template <MemorySpace space>
[[gnu::always_inline]] inline bool resolve(Warp& warp, const Code* code, std::uint32_t bytes,
                                           bool is_store, Places& places) {
  return (is_affine(warp, code->a) && resolve_affine<space>(warp, code, bytes, places)) ||
         resolve_lanes<space>(warp, code, bytes, is_store, places);
}

inline std::byte* place_of(const Places& places, std::uint32_t lane) {
  if (!places.is_affine) return places.each[lane];
  const std::uint32_t line = lane >> places.columns_log2;
  const std::uint32_t column = lane & ((1U << places.columns_log2) - 1);
  return places.base + places.stride * static_cast<S64>(column) +
         places.row * static_cast<S64>(line);
}
/// All 32 lanes are here and lie side by side, so many bytes each.
inline bool is_contiguous(const Warp& warp, const Places& places, std::uint32_t bytes) {
  return warp.mask == ~std::uint32_t{0} && places.is_affine &&
         places.stride == static_cast<S64>(bytes) &&
         (places.columns_log2 == 5 || places.row == static_cast<S64>(bytes) << places.columns_log2);
}
/// Calls body(lane, place) for the active lanes, the lowest first.
template <class Body>
inline void each_place(const Warp& warp, const Places& places, const Body& body) {
  if (warp.mask != ~std::uint32_t{0}) {
    for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
      const std::uint32_t i = first_lane(rest);
      body(i, place_of(places, i));
    }
  } else if (!places.is_affine) {
    for (std::uint32_t i = 0; i < kLanes; ++i)
      body(i, places.each[i]);
  } else {
    const std::uint32_t columns = 1U << places.columns_log2;
    std::byte* line = places.base;
    for (std::uint32_t i = 0; i < kLanes; line += places.row) {
      std::byte* place = line;
      for (const std::uint32_t end = i + columns; i < end; ++i, place += places.stride)
        body(i, place);
    }
  }
}

/// Slots of the values of a load or store, in order.
inline std::uint16_t value_slot(const Code* code, std::uint32_t nth) {
  switch (nth) {
    case 0:
      return code->d;
    case 1:
      return code->b;
    case 2:
      return code->c;
    default:
      return static_cast<std::uint16_t>(code->extra);
  }
}

/// 64 bytes of a register. If a handler writes in smaller pieces, the next one waits: the processor
/// hands a store on to a load only if the load lies within it.
template <class C>
struct Piece {
  static constexpr std::uint32_t kCount = 64 / sizeof(C);
  typedef C Values __attribute__((vector_size(64), may_alias));  // NOLINT(modernize-use-using)
};

/// Lanes in lines of `columns`; all of a line have the same value.
template <class T, std::uint32_t columns, class C>
inline void load_same_in_lines(C* lanes, const Places& places) {
  using Values = typename Piece<C>::Values;
  const std::byte* base = places.base;
  constexpr std::uint32_t kCount = Piece<C>::kCount;
  for (std::uint32_t first = 0; first < kLanes; first += kCount) {
    Values values = Values{} + static_cast<C>(load_from<T>(base));
    if constexpr (columns * 2 == kCount) {
      base += places.row;
      Values is_second{};
      for (std::uint32_t i = columns; i < kCount; ++i)
        is_second[i] = ~C{0};
      values =
          (values & ~is_second) | ((Values{} + static_cast<C>(load_from<T>(base))) & is_second);
    }
    if (columns <= kCount || (first + kCount) % columns == 0) base += places.row;
    __builtin_memcpy(lanes + first, &values, sizeof values);
  }
}
/// The same, the lanes of a line side by side.
template <class T, std::uint32_t columns, class C>
inline void load_lines(C* lanes, const Places& places) {
  const std::byte* base = places.base;
  for (std::uint32_t line = 0; line < kLanes; line += columns, base += places.row) {
    _Pragma("GCC ivdep") for (std::uint32_t i = 0; i < columns; ++i) lanes[line + i] =
        load_from<T>(base + i * sizeof(T));
  }
}

/// All 32 lanes, at any places.
template <class T, class C>
inline void load_apart(C* lanes, const std::byte* const* places) {
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4) {
    for (std::uint32_t i = 0; i < kLanes; i += 16) {
      const auto eight = [places](std::uint32_t first) {
        return _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), 0xff,
                                           _mm512_loadu_si512(places + first), nullptr, 1);
      };
      const __m512i both = __builtin_shufflevector(eight(i), eight(i + 8), 0, 1, 2, 3, 4, 5, 6, 7);
      _mm512_store_si512(lanes + i, both);
    }
    return;
  }
#endif
  for (std::uint32_t i = 0; i < kLanes; ++i)
    lanes[i] = load_from<T>(places[i]);
}

/// All 32 lanes, at places that are affine but not all the same.
template <class T, class C>
inline void load_affine(C* lanes, const Places& places) {
  const auto bytes = static_cast<S64>(sizeof(T));
  const bool is_line = places.stride == bytes;
  if (is_line && (places.columns_log2 == 5 || places.row == bytes << places.columns_log2)) {
    load_lines<T, 32>(lanes, places);
  } else if (places.columns_log2 == 4 && places.stride == 0) {
    load_same_in_lines<T, 16>(lanes, places);
  } else if (places.columns_log2 == 4 && is_line) {
    load_lines<T, 16>(lanes, places);
  } else if (places.columns_log2 == 3 && places.stride == 0) {
    load_same_in_lines<T, 8>(lanes, places);
  } else {
    const std::byte* each[kLanes];
    const std::uint32_t last = (1U << places.columns_log2) - 1;
    LANE_LOOP each[i] = places.base + places.stride * static_cast<S64>(i & last) +
                        places.row * static_cast<S64>(i >> places.columns_log2);
    load_apart<T>(lanes, each);
  }
}

template <class T>
[[gnu::always_inline]] inline void load_value(Warp& warp, std::uint16_t slot,
                                              const Places& places) {
  using C = Container<T>;
  if (places.is_affine && (places.stride | places.row) == 0 && is_whole(warp)) {
    set_uniform(warp, slot, load_from<T>(places.base));
    return;
  }
  C* const lanes = out<C>(warp, slot);
  if (places.is_affine && warp.mask == ~std::uint32_t{0}) {
    load_affine<T>(lanes, places);
  } else if (warp.mask == ~std::uint32_t{0}) {
    load_apart<T>(lanes, places.each);
  } else {
    each_place(warp, places, [lanes](std::uint32_t i, const std::byte* place) {
      lanes[i] = load_from<T>(place);
    });
  }
}

/// Several values a lane: brought side by side first, as they lie in memory, then spread to their
/// registers in one loop.
template <class T, std::uint32_t count>
inline void load_group(Warp& warp, const Code* code, const Places& places) {
  using C = Container<T>;
  constexpr std::uint32_t kBytes = sizeof(T) * count;
  if (places.is_affine && (places.stride | places.row) == 0 && is_whole(warp)) {
    for (std::uint32_t k = 0; k < count; ++k)
      set_uniform(warp, value_slot(code, k), load_from<T>(places.base + k * sizeof(T)));
    return;
  }
  alignas(64) std::byte buffer[kLanes * kBytes];
  const std::byte* from = buffer;
  if (is_contiguous(warp, places, kBytes)) {
    from = places.base;
  } else {
    if (warp.mask != ~std::uint32_t{0}) __builtin_memset(buffer, 0, sizeof buffer);
    each_place(warp, places, [&buffer](std::uint32_t i, const std::byte* place) {
      __builtin_memcpy(buffer + i * kBytes, place, kBytes);
    });
  }
  alignas(64) C values[count][kLanes];
  LANE_LOOP {
    for (std::uint32_t k = 0; k < count; ++k)
      values[k][i] = load_from<T>(from + std::size_t{i} * kBytes + k * sizeof(T));
  }
  for (std::uint32_t k = 0; k < count; ++k)
    write_lanes<C>(warp, value_slot(code, k),
                   [&values, k](std::uint32_t i) { return values[k][i]; });
}

template <MemorySpace space, class T, std::uint32_t count>
[[gnu::noinline]] const Code* load_lanes(Warp& warp, const Code* code) {
  Places places;
  if (!resolve<space>(warp, code, sizeof(T) * count, false, places)) return nullptr;
  if constexpr (count == 1) {
    load_value<T>(warp, code->d, places);
  } else {
    load_group<T, count>(warp, code, places);
  }
  return code + 1;
}

/// One place for all lanes needs no frame.
template <MemorySpace space, class T, std::uint32_t count>
const Code* load(Warp& warp, const Code* code) {
  const std::byte* const place = uniform_place<space>(warp, code, sizeof(T) * count);
  if (place == nullptr) return load_lanes<space, T, count>(warp, code);
  for (std::uint32_t k = 0; k < count; ++k)
    set_uniform(warp, value_slot(code, k), load_from<T>(place + k * sizeof(T)));
  return code + 1;
}

// In the order of the lanes: where several write to one place, the last one's value stays.
template <class T>
inline void store_value(Warp& warp, std::uint16_t slot, const Places& places) {
  using C = Container<T>;
  const C* const lanes = in<C>(warp, slot);
  if (is_contiguous(warp, places, sizeof(T))) {
    std::byte* const base = places.base;
    LANE_LOOP store_to<T>(base + i * sizeof(T), static_cast<T>(lanes[i]));
    return;
  }
  each_place(warp, places, [lanes](std::uint32_t i, std::byte* place) {
    store_to<T>(place, static_cast<T>(lanes[i]));
  });
}
template <class T, std::uint32_t count>
inline void store_group(Warp& warp, const Code* code, const Places& places) {
  using C = Container<T>;
  constexpr std::uint32_t kBytes = sizeof(T) * count;
  const C* lanes[count];
  for (std::uint32_t k = 0; k < count; ++k)
    lanes[k] = in<C>(warp, value_slot(code, k));
  alignas(64) std::byte buffer[kLanes * kBytes];
  LANE_LOOP {
    for (std::uint32_t k = 0; k < count; ++k)
      store_to<T>(buffer + i * kBytes + k * sizeof(T), static_cast<T>(lanes[k][i]));
  }
  if (is_contiguous(warp, places, kBytes)) {
    __builtin_memcpy(places.base, buffer, sizeof buffer);
    return;
  }
  each_place(warp, places, [&buffer](std::uint32_t i, std::byte* place) {
    __builtin_memcpy(place, buffer + i * kBytes, kBytes);
  });
}

template <MemorySpace space, class T, std::uint32_t count>
const Code* store(Warp& warp, const Code* code) {
  Places places;
  if (!resolve<space>(warp, code, sizeof(T) * count, true, places)) return nullptr;
  if constexpr (count == 1) {
    store_value<T>(warp, code->d, places);
  } else {
    store_group<T, count>(warp, code, places);
  }
  return code + 1;
}

// Rows by width: the type's effect on the register is a step of its own (.extend).
#define KANSOKU_FORMS_MEMORY(what, name, space)       \
  list.add(name, "b8", "m", what<space, U8, 1>);      \
  list.add(name, "b16", "m", what<space, U16, 1>);    \
  list.add(name, "b32", "m", what<space, U32, 1>);    \
  list.add(name, "b64", "m", what<space, U64, 1>);    \
  list.add(name, "v2.b8", "m", what<space, U8, 2>);   \
  list.add(name, "v2.b16", "m", what<space, U16, 2>); \
  list.add(name, "v2.b32", "m", what<space, U32, 2>); \
  list.add(name, "v2.b64", "m", what<space, U64, 2>); \
  list.add(name, "v4.b8", "m", what<space, U8, 4>);   \
  list.add(name, "v4.b16", "m", what<space, U16, 4>); \
  list.add(name, "v4.b32", "m", what<space, U32, 4>); \
  list.add(name, "v4.b64", "m", what<space, U64, 4>)

inline void list_memory_forms(const Lister& list) {
  KANSOKU_FORMS_MEMORY(load, ".ld.generic", MemorySpace::kGeneric);
  KANSOKU_FORMS_MEMORY(load, ".ld.global", MemorySpace::kGlobal);
  KANSOKU_FORMS_MEMORY(load, ".ld.shared", MemorySpace::kShared);
  KANSOKU_FORMS_MEMORY(load, ".ld.local", MemorySpace::kLocal);
  KANSOKU_FORMS_MEMORY(load, ".ld.param", MemorySpace::kParam);
  KANSOKU_FORMS_MEMORY(load, ".ld.const", MemorySpace::kConst);
  KANSOKU_FORMS_MEMORY(store, ".st.generic", MemorySpace::kGeneric);
  KANSOKU_FORMS_MEMORY(store, ".st.global", MemorySpace::kGlobal);
  KANSOKU_FORMS_MEMORY(store, ".st.shared", MemorySpace::kShared);
  KANSOKU_FORMS_MEMORY(store, ".st.local", MemorySpace::kLocal);
}

}  // namespace
}  // namespace kansoku::gpu::exec
