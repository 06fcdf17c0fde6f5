// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loops over the 32 lanes of a warp. This header is compiled once for each instruction set
// (forms_v2.cc, forms_v3.cc, forms_v4.cc), so everything here has internal linkage and nothing of
// the standard library with code of its own may be used: a shared inline function compiled for
// AVX-512 could be linked into the program for machines without it.

#include <cstdint>
#include <type_traits>

#include "gpu/exec/internal/warp.h"

// The lanes are independent; without this the compiler checks at run time whether arrays overlap
// and goes one by one where a register is both source and destination.
#define LANE_LOOP _Pragma("GCC ivdep") for (std::uint32_t i = 0; i < kLanes; ++i)

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};

/// A value out of its lane, and back.
template <class T>
inline T from_lane(Container<T> lane) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(lane);
  } else if constexpr (sizeof(T) == 2) {
    return T{static_cast<std::uint16_t>(lane)};
  } else {
    return __builtin_bit_cast(T, lane);
  }
}
template <class T>
inline Container<T> to_lane(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Container<T>>(static_cast<std::make_unsigned_t<T>>(value));
  } else if constexpr (sizeof(T) == 2) {
    return value.bits;
  } else {
    return __builtin_bit_cast(Container<T>, value);
  }
}

template <class C>
inline C* lanes_at(Warp& warp, std::uint16_t slot) {
  return static_cast<C*>(__builtin_assume_aligned(warp.lanes + std::size_t{slot} * kSlotBytes, 64));
}

template <class C>
inline void expand(Warp& warp, std::uint16_t slot) {
  C* lanes = lanes_at<C>(warp, slot);
  const C base = static_cast<C>(warp.affine[slot].base);
  const C stride = static_cast<C>(warp.affine[slot].stride);
  const C row = static_cast<C>(warp.affine[slot].row);
  const std::uint32_t last = warp.columns - 1, shift = warp.columns_log2;
  if ((stride | row) == 0) {
    LANE_LOOP lanes[i] = base;
  } else {
    LANE_LOOP lanes[i] =
        base + stride * static_cast<C>(i & last) + row * static_cast<C>(i >> shift);
  }
  warp.held[slot] = Held::kBoth;
}

/// The lanes of a source. To be called for all sources before out() of the destination.
template <class C>
inline const C* in(Warp& warp, std::uint16_t slot) {
  if (warp.held[slot] == Held::kAffine) expand<C>(warp, slot);
  return lanes_at<C>(warp, slot);
}

template <class C>
inline C* out(Warp& warp, std::uint16_t slot) {
  if (warp.held[slot] == Held::kAffine && warp.mask != warp.whole) expand<C>(warp, slot);
  warp.held[slot] = Held::kValues;
  return lanes_at<C>(warp, slot);
}

inline const std::uint32_t* active_lanes(Warp& warp) {
  if (warp.active_for != warp.mask) {
    const std::uint32_t mask = warp.mask;
    LANE_LOOP warp.active[i] = (mask >> i & 1) != 0 ? ~std::uint32_t{0} : 0;
    warp.active_for = mask;
  }
  return warp.active.data();
}

/// The lanes of the destination become value(i), as far as lanes are active.
template <class C, class Value>
[[gnu::always_inline]] inline void put_lanes(Warp& warp, C* lanes, const Value& value) {
  if (warp.mask == warp.whole) {
    LANE_LOOP lanes[i] = value(i);
    return;
  }
  const std::uint32_t* const active = active_lanes(warp);
  LANE_LOOP {
    const C result = value(i);
    lanes[i] = active[i] != 0 ? result : lanes[i];
  }
}
template <class C, class Value>
inline void write_lanes(Warp& warp, std::uint16_t slot, const Value& value) {
  put_lanes<C>(warp, out<C>(warp, slot), value);
}

/// Registers that the lane loop of a handler cannot use as they are: sources whose lanes are stale,
/// and such a destination if it keeps some of them.
inline bool is_stale(const Warp& warp, std::uint16_t slot) {
  return warp.held[slot] == Held::kAffine;
}
inline bool is_stale_target(const Warp& warp, std::uint16_t slot) {
  return warp.mask != warp.whole && is_stale(warp, slot);
}
/// Writes out stale values and runs the handler `again`. The way of few codes, so that the handlers
/// call nothing and need no frame. D and Sources: containers of d, and of a, b, c in turn.
template <class D, class... Sources>
[[gnu::noinline]] const Code* refresh(Warp& warp, const Code* code, Handler again) {
  const std::uint16_t slots[] = {code->a, code->b, code->c};
  std::uint32_t k = 0;
  ((is_stale(warp, slots[k]) ? expand<Sources>(warp, slots[k]) : void(), ++k), ...);
  if (is_stale_target(warp, code->d)) expand<D>(warp, code->d);
  return again(warp, code);
}

inline void write_predicate(Warp& warp, std::uint16_t predicate, std::uint32_t bits) {
  std::uint32_t& value = warp.predicates[predicate];
  value = (value & ~warp.mask) | (bits & warp.mask);
}

inline bool is_whole(const Warp& warp) {
  return warp.mask == warp.whole;
}
inline bool is_affine(const Warp& warp, std::uint16_t slot) {
  return warp.held[slot] != Held::kValues;
}
template <class C>
inline bool is_uniform(const Warp& warp, std::uint16_t slot) {
  return is_affine(warp, slot) &&
         static_cast<C>(warp.affine[slot].stride | warp.affine[slot].row) == 0;
}
inline void set_affine(Warp& warp, std::uint16_t slot, const Affine& value) {
  warp.affine[slot] = value;
  warp.held[slot] = Held::kAffine;
}
inline void set_uniform(Warp& warp, std::uint16_t slot, std::uint64_t value) {
  set_affine(warp, slot, {value, 0, 0});
}
template <class T>
inline T uniform_value(const Warp& warp, std::uint16_t slot) {
  return from_lane<T>(static_cast<Container<T>>(warp.affine[slot].base));
}

/// Least and greatest value of a 32-bit affine register, read as numbers of T, if nothing wraps.
struct Extremes {
  std::int64_t least, greatest;
};
template <class T>
inline Extremes extremes_of(const Warp& warp, const Affine& affine) {
  static_assert(sizeof(T) == 4);
  const auto base = static_cast<std::int64_t>(static_cast<T>(affine.base));
  const std::int64_t across = static_cast<std::int64_t>(static_cast<std::int32_t>(affine.stride)) *
                              (static_cast<std::int64_t>(warp.columns) - 1);
  const std::int64_t down = static_cast<std::int64_t>(static_cast<std::int32_t>(affine.row)) *
                            (static_cast<std::int64_t>(kLanes / warp.columns) - 1);
  return {base + (across < 0 ? across : 0) + (down < 0 ? down : 0),
          base + (across > 0 ? across : 0) + (down > 0 ? down : 0)};
}
/// True if all lanes stay within T.
template <class T>
inline bool stays_in_range(const Warp& warp, const Affine& affine) {
  const Extremes range = extremes_of<T>(warp, affine);
  return range.least == static_cast<std::int64_t>(static_cast<T>(range.least)) &&
         range.greatest == static_cast<std::int64_t>(static_cast<T>(range.greatest));
}

/// How an operation acts on affine operands; everything works on uniform ones.
enum class Linear { kNone, kAdd, kSub, kMul, kShl, kMad, kCopy, kWiden, kMulWide, kMadWide };

/// Traits of an operation for the loops: types of its result and its sources, and how it is linear.
template <class Function>
struct Signature;
template <class Result, class First>
struct Signature<Result(First)> {
  using Out = Result;
  using A = First;
  static constexpr Linear kLinear = Linear::kNone;
};
template <class Result, class First, class Second>
struct Signature<Result(First, Second)> : Signature<Result(First)> {
  using B = Second;
};
template <class Result, class First, class Second, class Third>
struct Signature<Result(First, Second, Third)> : Signature<Result(First, Second)> {
  using C = Third;
};

inline std::uint64_t sign_extended(std::uint64_t low) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(low)));
}
/// A 32-bit affine value read as T, in 64 bits; only if it stays in range.
template <class T>
inline Affine widened_affine(const Affine& a) {
  return {static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<T>(a.base))),
          sign_extended(a.stride), sign_extended(a.row)};
}
inline Affine scaled(const Affine& a, std::uint64_t factor) {
  return {a.base * factor, a.stride * factor, a.row * factor};
}
inline Affine plus(const Affine& a, const Affine& b) {
  return {a.base + b.base, a.stride + b.stride, a.row + b.row};
}
template <class C>
inline bool has_no_stride(const Affine& a) {
  return static_cast<C>(a.stride | a.row) == 0;
}

/// product = a * b, where one of them is the same in all lanes.
template <class C>
inline bool product_of(const Affine& a, const Affine& b, Affine& product) {
  if (has_no_stride<C>(b)) {
    product = scaled(a, b.base);
    return true;
  }
  if (!has_no_stride<C>(a)) return false;
  product = scaled(b, a.base);
  return true;
}
/// The same in 64 bits, of 32-bit operands.
template <class T>
inline bool widening_product(const Warp& warp, const Affine& a, const Affine& b, Affine& product) {
  if (!stays_in_range<T>(warp, a) || !stays_in_range<T>(warp, b)) return false;
  return product_of<std::uint64_t>(widened_affine<T>(a), widened_affine<T>(b), product);
}

/// The same in three registers. The fields were stored one by one: a load of two of them at once
/// would wait for the stores.
inline Affine in_fields(const Affine& a) {
  Affine fields = a;
  __asm__("" : "+r"(fields.base), "+r"(fields.stride), "+r"(fields.row));
  return fields;
}

template <class F>
inline bool unary_linear(const Warp& warp, const Affine& a, Affine& result) {
  if constexpr (F::kLinear == Linear::kCopy) {
    result = in_fields(a);
    return true;
  } else if constexpr (F::kLinear == Linear::kWiden) {
    if (!stays_in_range<typename F::A>(warp, a)) return false;
    result = widened_affine<typename F::A>(a);
    return true;
  }
  return false;
}

template <class F>
inline bool binary_linear(const Warp& warp, const Affine& a, const Affine& b, Affine& result) {
  using C = Container<typename F::A>;
  if constexpr (F::kLinear == Linear::kAdd) {
    result = plus(a, b);
    return true;
  } else if constexpr (F::kLinear == Linear::kSub) {
    result = plus(a, scaled(b, ~std::uint64_t{0}));
    return true;
  } else if constexpr (F::kLinear == Linear::kMul) {
    return product_of<C>(a, b, result);
  } else if constexpr (F::kLinear == Linear::kShl) {
    const auto count = static_cast<std::uint32_t>(b.base);
    if (!has_no_stride<std::uint32_t>(b) || count >= 8 * sizeof(C)) return false;
    result = scaled(a, std::uint64_t{1} << count);
    return true;
  } else if constexpr (F::kLinear == Linear::kMulWide) {
    return widening_product<typename F::A>(warp, a, b, result);
  }
  return false;
}

template <class F>
inline bool ternary_linear(const Warp& warp, const Affine& a, const Affine& b, const Affine& c,
                           Affine& result) {
  Affine product;
  if constexpr (F::kLinear == Linear::kMad) {
    if (!product_of<Container<typename F::A>>(a, b, product)) return false;
  } else if constexpr (F::kLinear == Linear::kMadWide) {
    if (!widening_product<typename F::A>(warp, a, b, product)) return false;
  } else {
    return false;
  }
  result = plus(product, c);
  return true;
}

/// An operation that does all lanes at once: `apply_all(results, a...)` on arrays of kLanes; one
/// source may be the array of another, the results lie apart.
template <class F, class... Lanes>
concept InBulk = requires(Container<typename F::Out>* to, const Lanes*... sources) {
  F::apply_all(to, sources...);
};

/// The lanes of the destination, which is not stale, from those of the sources.
template <class F, class... Lanes, class Value>
[[gnu::always_inline]] inline void write_results(Warp& warp, std::uint16_t slot, const Value& value,
                                                 const Lanes*... sources) {
  using C = Container<typename F::Out>;
  C* const lanes = lanes_at<C>(warp, slot);
  warp.held[slot] = Held::kValues;
  if constexpr (InBulk<F, Lanes...>) {
    alignas(64) C results[kLanes];
    F::apply_all(results, sources...);
    put_lanes<C>(warp, lanes, [&results](std::uint32_t i) { return results[i]; });
  } else {
    put_lanes<C>(warp, lanes, value);
  }
}

template <class F>
const Code* unary(Warp& warp, const Code* code) {
  using Out = typename F::Out;
  using A = typename F::A;
  if (is_whole(warp) && is_affine(warp, code->a)) {
    if (is_uniform<Container<A>>(warp, code->a)) {
      set_uniform(warp, code->d, to_lane<Out>(F::apply(uniform_value<A>(warp, code->a))));
      return code + 1;
    }
    Affine result;
    if (unary_linear<F>(warp, warp.affine[code->a], result)) {
      set_affine(warp, code->d, result);
      return code + 1;
    }
  }
  if (is_stale(warp, code->a) || is_stale_target(warp, code->d))
    return refresh<Container<Out>, Container<A>>(warp, code, unary<F>);
  const auto* const a = lanes_at<const Container<A>>(warp, code->a);
  write_results<F>(
      warp, code->d, [a](std::uint32_t i) { return to_lane<Out>(F::apply(from_lane<A>(a[i]))); },
      a);
  return code + 1;
}

template <class F>
const Code* binary(Warp& warp, const Code* code) {
  using Out = typename F::Out;
  using A = typename F::A;
  using B = typename F::B;
  if (is_whole(warp) && is_affine(warp, code->a) && is_affine(warp, code->b)) {
    if (is_uniform<Container<A>>(warp, code->a) && is_uniform<Container<B>>(warp, code->b)) {
      const Out value = F::apply(uniform_value<A>(warp, code->a), uniform_value<B>(warp, code->b));
      set_uniform(warp, code->d, to_lane<Out>(value));
      return code + 1;
    }
    Affine result;
    if (binary_linear<F>(warp, warp.affine[code->a], warp.affine[code->b], result)) {
      set_affine(warp, code->d, result);
      return code + 1;
    }
  }
  if (is_stale(warp, code->a) || is_stale(warp, code->b) || is_stale_target(warp, code->d))
    return refresh<Container<Out>, Container<A>, Container<B>>(warp, code, binary<F>);
  const auto* const a = lanes_at<const Container<A>>(warp, code->a);
  const auto* const b = lanes_at<const Container<B>>(warp, code->b);
  write_results<F>(
      warp, code->d,
      [a, b](std::uint32_t i) {
        return to_lane<Out>(F::apply(from_lane<A>(a[i]), from_lane<B>(b[i])));
      },
      a, b);
  return code + 1;
}

template <class F>
const Code* ternary(Warp& warp, const Code* code) {
  using Out = typename F::Out;
  using A = typename F::A;
  using B = typename F::B;
  using D = typename F::C;
  if (is_whole(warp) && is_affine(warp, code->a) && is_affine(warp, code->b) &&
      is_affine(warp, code->c)) {
    if (is_uniform<Container<A>>(warp, code->a) && is_uniform<Container<B>>(warp, code->b) &&
        is_uniform<Container<D>>(warp, code->c)) {
      const Out value = F::apply(uniform_value<A>(warp, code->a), uniform_value<B>(warp, code->b),
                                 uniform_value<D>(warp, code->c));
      set_uniform(warp, code->d, to_lane<Out>(value));
      return code + 1;
    }
    Affine result;
    if (ternary_linear<F>(warp, warp.affine[code->a], warp.affine[code->b], warp.affine[code->c],
                          result)) {
      set_affine(warp, code->d, result);
      return code + 1;
    }
  }
  if (is_stale(warp, code->a) || is_stale(warp, code->b) || is_stale(warp, code->c) ||
      is_stale_target(warp, code->d))
    return refresh<Container<Out>, Container<A>, Container<B>, Container<D>>(warp, code,
                                                                             ternary<F>);
  const auto* const a = lanes_at<const Container<A>>(warp, code->a);
  const auto* const b = lanes_at<const Container<B>>(warp, code->b);
  const auto* const c = lanes_at<const Container<D>>(warp, code->c);
  write_results<F>(
      warp, code->d,
      [a, b, c](std::uint32_t i) {
        return to_lane<Out>(F::apply(from_lane<A>(a[i]), from_lane<B>(b[i]), from_lane<D>(c[i])));
      },
      a, b, c);
  return code + 1;
}

/// Like ternary, with the fourth source in Code::extra: a slot.
template <class F>
const Code* quaternary(Warp& warp, const Code* code) {
  using Out = typename F::Out;
  using A = typename F::A;
  const auto fourth = static_cast<std::uint16_t>(code->extra);
  const auto* const a = in<Container<A>>(warp, code->a);
  const auto* const b = in<Container<A>>(warp, code->b);
  const auto* const c = in<std::uint32_t>(warp, code->c);
  const auto* const d = in<std::uint32_t>(warp, fourth);
  write_lanes<Container<Out>>(warp, code->d, [a, b, c, d](std::uint32_t i) {
    return to_lane<Out>(F::apply(from_lane<A>(a[i]), from_lane<A>(b[i]), c[i], d[i]));
  });
  return code + 1;
}

/// The lanes for which the comparison holds.
template <class F>
inline std::uint32_t compare_bits(Warp& warp, std::uint16_t slot_a, std::uint16_t slot_b) {
  using A = typename F::A;
  using C = Container<A>;
  if (is_uniform<C>(warp, slot_a) && is_uniform<C>(warp, slot_b)) {
    return F::apply(uniform_value<A>(warp, slot_a), uniform_value<A>(warp, slot_b)) ? ~0U : 0U;
  }
  if constexpr (F::kIsOrder && std::is_integral_v<A> && sizeof(A) == 4) {
    // Indices against a bound: if it holds for the least and the greatest it holds for all.
    if (is_affine(warp, slot_a) && is_uniform<C>(warp, slot_b) &&
        stays_in_range<A>(warp, warp.affine[slot_a])) {
      const Extremes range = extremes_of<A>(warp, warp.affine[slot_a]);
      const A bound = uniform_value<A>(warp, slot_b);
      const bool first = F::apply(static_cast<A>(range.least), bound);
      if (first == F::apply(static_cast<A>(range.greatest), bound)) return first ? ~0U : 0U;
    }
  }
  const C* const a = in<C>(warp, slot_a);
  const C* const b = in<C>(warp, slot_b);
  std::uint32_t bits = 0;
  LANE_LOOP bits |= static_cast<std::uint32_t>(F::apply(from_lane<A>(a[i]), from_lane<A>(b[i])))
                    << i;
  return bits;
}

template <class F>
const Code* compare(Warp& warp, const Code* code) {
  const std::uint32_t bits = compare_bits<F>(warp, code->a, code->b);
  write_predicate(warp, code->d, bits);
  return code + 1;
}

/// Bits of Code::extra: how setp uses its third source and its second destination.
struct Combine {
  static constexpr std::uint32_t kAnd = 1, kOr = 2, kXor = 3, kOpMask = 3;
  static constexpr std::uint32_t kNegate = 4;        // the third source
  static constexpr std::uint32_t kSecondShift = 16;  // second destination + 1; 0: none
};

inline std::uint32_t combined(std::uint32_t bits, std::uint32_t with, std::uint32_t extra) {
  switch (extra & Combine::kOpMask) {
    case Combine::kAnd:
      return bits & with;
    case Combine::kOr:
      return bits | with;
    case Combine::kXor:
      return bits ^ with;
    default:
      return bits;
  }
}

/// p|q = setp a, b, c: p = compare op c, q = !compare op c.
template <class F>
const Code* compare_combined(Warp& warp, const Code* code) {
  const std::uint32_t bits = compare_bits<F>(warp, code->a, code->b);
  std::uint32_t with = 0;
  if ((code->extra & Combine::kOpMask) != 0) {
    with = warp.predicates[code->c];
    if ((code->extra & Combine::kNegate) != 0) with = ~with;
  }
  const std::uint32_t second = code->extra >> Combine::kSecondShift;
  write_predicate(warp, code->d, combined(bits, with, code->extra));
  if (second != 0) {
    write_predicate(warp, static_cast<std::uint16_t>(second - 1),
                    combined(~bits, with, code->extra));
  }
  return code + 1;
}

/// set: all ones, or 1.0, where the comparison holds; extra as with setp, in c its predicate.
template <class F, class Out>
const Code* compare_to_value(Warp& warp, const Code* code) {
  std::uint32_t bits = compare_bits<F>(warp, code->a, code->b);
  if ((code->extra & Combine::kOpMask) != 0) {
    std::uint32_t with = warp.predicates[code->c];
    if ((code->extra & Combine::kNegate) != 0) with = ~with;
    bits = combined(bits, with, code->extra);
  }
  const std::uint32_t yes =
      std::is_floating_point_v<Out> ? __builtin_bit_cast(std::uint32_t, 1.0F) : ~0U;
  write_lanes<std::uint32_t>(warp, code->d,
                             [bits](std::uint32_t i) { return (bits >> i & 1) != 0 ? yes : 0; });
  return code + 1;
}

/// selp: extra != 0: the predicate is negated.
template <class T>
const Code* select(Warp& warp, const Code* code) {
  using C = Container<T>;
  std::uint32_t chosen = warp.predicates[code->c];
  if (code->extra != 0) chosen = ~chosen;
  const C* const a = in<C>(warp, code->a);
  const C* const b = in<C>(warp, code->b);
  write_lanes<C>(warp, code->d,
                 [a, b, chosen](std::uint32_t i) { return (chosen >> i & 1) != 0 ? a[i] : b[i]; });
  return code + 1;
}

/// For operations that the compiler cannot vectorise or must not run on idle lanes: the same, lane
/// by lane.
template <class F>
const Code* unary_each(Warp& warp, const Code* code) {
  using Out = typename F::Out;
  using A = typename F::A;
  if (is_whole(warp) && is_uniform<Container<A>>(warp, code->a)) {
    set_uniform(warp, code->d, to_lane<Out>(F::apply(uniform_value<A>(warp, code->a))));
    return code + 1;
  }
  const auto* const a = in<Container<A>>(warp, code->a);
  auto* const d = out<Container<Out>>(warp, code->d);
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<std::uint32_t>(__builtin_ctz(rest));
    d[i] = to_lane<Out>(F::apply(from_lane<A>(a[i])));
  }
  return code + 1;
}

template <class F>
const Code* binary_each(Warp& warp, const Code* code) {
  using Out = typename F::Out;
  using A = typename F::A;
  using B = typename F::B;
  const auto* const a = in<Container<A>>(warp, code->a);
  const auto* const b = in<Container<B>>(warp, code->b);
  auto* const d = out<Container<Out>>(warp, code->d);
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<std::uint32_t>(__builtin_ctz(rest));
    d[i] = to_lane<Out>(F::apply(from_lane<A>(a[i]), from_lane<B>(b[i])));
  }
  return code + 1;
}

}  // namespace
}  // namespace kansoku::gpu::exec
