// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rows of the operation table that lane loops execute. Included once by each forms_v*.cc.

#include "gpu/exec/internal/decode/forms.h"
#include "gpu/exec/internal/ops/conversion_ops.h"
#include "gpu/exec/internal/ops/warp_ops.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S8 = std::int8_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

template <class... Lanes>
struct Shape {
  static constexpr char kText[] = {(sizeof(Lanes) > 4 ? 'l' : 'i')..., '\0'};
};
template <class... Lanes>
struct PredicateShape {
  static constexpr char kText[] = {'p', (sizeof(Lanes) > 4 ? 'l' : 'i')..., '\0'};
};

class Lister {
 public:
  explicit Lister(const FormSink& sink) : sink_(sink) {}

  void add(const char* op, const char* suffixes, const char* shape, Handler run,
           Handler combined = nullptr) const {
    sink_.add(sink_.context, op, suffixes, shape, run, combined);
  }
  template <class F>
  void one(const char* op, const char* suffixes) const {
    add(op, suffixes, Shape<typename F::Out, typename F::A>::kText, unary<F>);
  }
  template <class F>
  void one_each(const char* op, const char* suffixes) const {
    add(op, suffixes, Shape<typename F::Out, typename F::A>::kText, unary_each<F>);
  }
  template <class F>
  void two(const char* op, const char* suffixes) const {
    add(op, suffixes, Shape<typename F::Out, typename F::A, typename F::B>::kText, binary<F>);
  }
  template <class F>
  void two_each(const char* op, const char* suffixes) const {
    add(op, suffixes, Shape<typename F::Out, typename F::A, typename F::B>::kText, binary_each<F>);
  }
  template <class F>
  void three(const char* op, const char* suffixes) const {
    add(op, suffixes, Shape<typename F::Out, typename F::A, typename F::B, typename F::C>::kText,
        ternary<F>);
  }
  template <class F>
  void comparison(const char* suffixes) const {
    using A = typename F::A;
    add("setp", suffixes, PredicateShape<A, A>::kText, compare<F>, compare_combined<F>);
  }

 private:
  const FormSink& sink_;
};

#define KANSOKU_FORMS_ALL_INTEGERS(F, op, method) \
  list.method<F<U16>>(op, "u16");                 \
  list.method<F<S16>>(op, "s16");                 \
  list.method<F<U32>>(op, "u32");                 \
  list.method<F<S32>>(op, "s32");                 \
  list.method<F<U64>>(op, "u64");                 \
  list.method<F<S64>>(op, "s64")

inline void list_integer_forms(const Lister& list) {
  KANSOKU_FORMS_ALL_INTEGERS(Add, "add", two);
  KANSOKU_FORMS_ALL_INTEGERS(Sub, "sub", two);
  list.two<SatAdd<S32>>("add", "sat.s32");
  list.two<SatSub<S32>>("sub", "sat.s32");
  KANSOKU_FORMS_ALL_INTEGERS(MulLo, "mul.lo", two);
  KANSOKU_FORMS_ALL_INTEGERS(MulHi, "mul.hi", two);
  list.two<MulWide<U16>>("mul.wide", "u16");
  list.two<MulWide<S16>>("mul.wide", "s16");
  list.two<MulWide<U32>>("mul.wide", "u32");
  list.two<MulWide<S32>>("mul.wide", "s32");
  KANSOKU_FORMS_ALL_INTEGERS(MadLo, "mad.lo", three);
  KANSOKU_FORMS_ALL_INTEGERS(MadHi, "mad.hi", three);
  list.three<MadHiSat<S32>>("mad.hi", "sat.s32");
  list.three<MadWide<U16>>("mad.wide", "u16");
  list.three<MadWide<S16>>("mad.wide", "s16");
  list.three<MadWide<U32>>("mad.wide", "u32");
  list.three<MadWide<S32>>("mad.wide", "s32");
  KANSOKU_FORMS_ALL_INTEGERS(Div, "div", two_each);
  KANSOKU_FORMS_ALL_INTEGERS(Rem, "rem", two_each);
  KANSOKU_FORMS_ALL_INTEGERS(Min, "min", two);
  KANSOKU_FORMS_ALL_INTEGERS(Max, "max", two);
  list.two<MinRelu<S32>>("min", "relu.s32");
  list.two<MaxRelu<S32>>("max", "relu.s32");
  KANSOKU_FORMS_ALL_INTEGERS(Sad, "sad", three);
  list.one<Neg<S16>>("neg", "s16");
  list.one<Neg<S32>>("neg", "s32");
  list.one<Neg<S64>>("neg", "s64");
  list.one<Abs<S16>>("abs", "s16");
  list.one<Abs<S32>>("abs", "s32");
  list.one<Abs<S64>>("abs", "s64");
  list.two<Mul24Lo<U32>>("mul24.lo", "u32");
  list.two<Mul24Lo<S32>>("mul24.lo", "s32");
  list.two<Mul24Hi<U32>>("mul24.hi", "u32");
  list.two<Mul24Hi<S32>>("mul24.hi", "s32");
  list.three<Mad24Lo<U32>>("mad24.lo", "u32");
  list.three<Mad24Lo<S32>>("mad24.lo", "s32");
  list.three<Mad24Hi<U32>>("mad24.hi", "u32");
  list.three<Mad24Hi<S32>>("mad24.hi", "s32");
  list.three<Mad24HiSat<S32>>("mad24.hi", "sat.s32");
}

#define KANSOKU_FORMS_ALL_BITS(F, op, method) \
  list.method<F<U16>>(op, "b16");             \
  list.method<F<U32>>(op, "b32");             \
  list.method<F<U64>>(op, "b64")

inline void list_bit_forms(const Lister& list) {
  KANSOKU_FORMS_ALL_BITS(And, "and", two);
  KANSOKU_FORMS_ALL_BITS(Or, "or", two);
  KANSOKU_FORMS_ALL_BITS(Xor, "xor", two);
  KANSOKU_FORMS_ALL_BITS(Not, "not", one);
  KANSOKU_FORMS_ALL_BITS(Cnot, "cnot", one);
  KANSOKU_FORMS_ALL_BITS(Shl, "shl", two);
  KANSOKU_FORMS_ALL_BITS(Shr, "shr", two);
  KANSOKU_FORMS_ALL_INTEGERS(Shr, "shr", two);
  list.three<Shf<true, false>>("shf.l", "clamp.b32");
  list.three<Shf<true, true>>("shf.l", "wrap.b32");
  list.three<Shf<false, false>>("shf.r", "clamp.b32");
  list.three<Shf<false, true>>("shf.r", "wrap.b32");
  list.one<Popc<U32>>("popc", "b32");
  list.one<Popc<U64>>("popc", "b64");
  list.one<Clz<U32>>("clz", "b32");
  list.one<Clz<U64>>("clz", "b64");
  list.one<Bfind<U32>>("bfind", "u32");
  list.one<Bfind<S32>>("bfind", "s32");
  list.one<Bfind<U64>>("bfind", "u64");
  list.one<Bfind<S64>>("bfind", "s64");
  list.one<BfindShift<U32>>("bfind.shiftamt", "u32");
  list.one<BfindShift<S32>>("bfind.shiftamt", "s32");
  list.one<BfindShift<U64>>("bfind.shiftamt", "u64");
  list.one<BfindShift<S64>>("bfind.shiftamt", "s64");
  list.one<Brev<U32>>("brev", "b32");
  list.one<Brev<U64>>("brev", "b64");
  list.three<Bfe<U32>>("bfe", "u32");
  list.three<Bfe<S32>>("bfe", "s32");
  list.three<Bfe<U64>>("bfe", "u64");
  list.three<Bfe<S64>>("bfe", "s64");
  list.add("bfi", "b32", "iiiii", quaternary<Bfi<U32>>);
  list.add("bfi", "b64", "lllii", quaternary<Bfi<U64>>);
  list.two<Szext<true, false>>("szext", "clamp.u32");
  list.two<Szext<true, true>>("szext", "clamp.s32");
  list.two<Szext<false, false>>("szext", "wrap.u32");
  list.two<Szext<false, true>>("szext", "wrap.s32");
  list.two<Bmsk<true>>("bmsk", "clamp.b32");
  list.two<Bmsk<false>>("bmsk", "wrap.b32");
  list.three<Prmt>("prmt", "b32");
  list.three<PrmtBy<PrmtMode::kF4e>>("prmt", "b32.f4e");
  list.three<PrmtBy<PrmtMode::kB4e>>("prmt", "b32.b4e");
  list.three<PrmtBy<PrmtMode::kRc8>>("prmt", "b32.rc8");
  list.three<PrmtBy<PrmtMode::kEcl>>("prmt", "b32.ecl");
  list.three<PrmtBy<PrmtMode::kEcr>>("prmt", "b32.ecr");
  list.three<PrmtBy<PrmtMode::kRc16>>("prmt", "b32.rc16");
  list.three<Dp4a<U8, U8>>("dp4a", "u32.u32");
  list.three<Dp4a<U8, S8>>("dp4a", "u32.s32");
  list.three<Dp4a<S8, U8>>("dp4a", "s32.u32");
  list.three<Dp4a<S8, S8>>("dp4a", "s32.s32");
  list.three<Dp2a<U16, U8, false>>("dp2a.lo", "u32.u32");
  list.three<Dp2a<U16, S8, false>>("dp2a.lo", "u32.s32");
  list.three<Dp2a<S16, U8, false>>("dp2a.lo", "s32.u32");
  list.three<Dp2a<S16, S8, false>>("dp2a.lo", "s32.s32");
  list.three<Dp2a<U16, U8, true>>("dp2a.hi", "u32.u32");
  list.three<Dp2a<U16, S8, true>>("dp2a.hi", "u32.s32");
  list.three<Dp2a<S16, U8, true>>("dp2a.hi", "s32.u32");
  list.three<Dp2a<S16, S8, true>>("dp2a.hi", "s32.s32");
  list.add("lop3", "b32", "iiii", lop3);
}

// The forms that clang's headers make of __vadd4 and the like: one type for all three operands.
#define KANSOKU_FORMS_VIDEO_SET(op, U, S, how, Compare)                              \
  list.three<Video<U, VideoSet<Compare<S32>>, VideoEnd::kWrap>>(op, "u32.u32." how); \
  list.three<Video<S, VideoSet<Compare<S32>>, VideoEnd::kWrap>>(op, "s32.s32." how)
#define KANSOKU_FORMS_VIDEO(op, U, S, F, end, suffix)               \
  list.three<Video<U, F, VideoEnd::end>>(op, "u32.u32.u32" suffix); \
  list.three<Video<S, F, VideoEnd::end>>(op, "s32.s32.s32" suffix)
#define KANSOKU_FORMS_VIDEOS(count, U, S)                                          \
  KANSOKU_FORMS_VIDEO("vadd" count, U, S, VideoAdd, kWrap, "");                    \
  KANSOKU_FORMS_VIDEO("vadd" count, U, S, VideoAdd, kSaturate, ".sat");            \
  KANSOKU_FORMS_VIDEO("vsub" count, U, S, VideoSub, kWrap, "");                    \
  KANSOKU_FORMS_VIDEO("vsub" count, U, S, VideoSub, kSaturate, ".sat");            \
  KANSOKU_FORMS_VIDEO("vavrg" count, U, S, VideoAverage, kWrap, "");               \
  KANSOKU_FORMS_VIDEO("vabsdiff" count, U, S, VideoDifference, kWrap, "");         \
  KANSOKU_FORMS_VIDEO("vabsdiff" count, U, S, VideoDifference, kSaturate, ".sat"); \
  KANSOKU_FORMS_VIDEO("vabsdiff" count, U, S, VideoDifference, kSum, ".add");      \
  KANSOKU_FORMS_VIDEO("vmin" count, U, S, VideoMin, kWrap, "");                    \
  KANSOKU_FORMS_VIDEO("vmax" count, U, S, VideoMax, kWrap, "");                    \
  KANSOKU_FORMS_VIDEO_SET("vset" count, U, S, "eq", Eq);                           \
  KANSOKU_FORMS_VIDEO_SET("vset" count, U, S, "ne", Ne);                           \
  KANSOKU_FORMS_VIDEO_SET("vset" count, U, S, "lt", Lt);                           \
  KANSOKU_FORMS_VIDEO_SET("vset" count, U, S, "le", Le);                           \
  KANSOKU_FORMS_VIDEO_SET("vset" count, U, S, "gt", Gt);                           \
  KANSOKU_FORMS_VIDEO_SET("vset" count, U, S, "ge", Ge)

inline void list_video_forms(const Lister& list) {
  KANSOKU_FORMS_VIDEOS("2", U16, S16);
  KANSOKU_FORMS_VIDEOS("4", U8, S8);
}
#undef KANSOKU_FORMS_VIDEOS
#undef KANSOKU_FORMS_VIDEO
#undef KANSOKU_FORMS_VIDEO_SET

#define KANSOKU_FORMS_CARRY(suffix, T, shape2, shape3)                             \
  list.add("add.cc", suffix, shape2, add_with_carry<T, false, false, true>);       \
  list.add("addc", suffix, shape2, add_with_carry<T, false, true, false>);         \
  list.add("addc.cc", suffix, shape2, add_with_carry<T, false, true, true>);       \
  list.add("sub.cc", suffix, shape2, add_with_carry<T, true, false, true>);        \
  list.add("subc", suffix, shape2, add_with_carry<T, true, true, false>);          \
  list.add("subc.cc", suffix, shape2, add_with_carry<T, true, true, true>);        \
  list.add("mad.lo.cc", suffix, shape3, mad_with_carry<T, MulLo<T>, false, true>); \
  list.add("madc.lo", suffix, shape3, mad_with_carry<T, MulLo<T>, true, false>);   \
  list.add("madc.lo.cc", suffix, shape3, mad_with_carry<T, MulLo<T>, true, true>)
#define KANSOKU_FORMS_CARRY_HIGH(suffix, T, P, shape)                             \
  list.add("mad.hi.cc", suffix, shape, mad_with_carry<T, MulHi<P>, false, true>); \
  list.add("madc.hi", suffix, shape, mad_with_carry<T, MulHi<P>, true, false>);   \
  list.add("madc.hi.cc", suffix, shape, mad_with_carry<T, MulHi<P>, true, true>)

inline void list_carry_forms(const Lister& list) {
  KANSOKU_FORMS_CARRY("u32", U32, "iii", "iiii");
  KANSOKU_FORMS_CARRY("s32", U32, "iii", "iiii");
  KANSOKU_FORMS_CARRY("u64", U64, "lll", "llll");
  KANSOKU_FORMS_CARRY("s64", U64, "lll", "llll");
  KANSOKU_FORMS_CARRY_HIGH("u32", U32, U32, "iiii");
  KANSOKU_FORMS_CARRY_HIGH("s32", U32, S32, "iiii");
  KANSOKU_FORMS_CARRY_HIGH("u64", U64, U64, "llll");
  KANSOKU_FORMS_CARRY_HIGH("s64", U64, S64, "llll");
}

template <class T>
inline void list_signless_comparisons(const Lister& list, const char* eq, const char* ne) {
  list.comparison<Eq<T>>(eq);
  list.comparison<Ne<T>>(ne);
}
#define KANSOKU_FORMS_ORDER(T, name)                          \
  list_signless_comparisons<T>(list, "eq." name, "ne." name); \
  list.comparison<Lt<T>>("lt." name);                         \
  list.comparison<Le<T>>("le." name);                         \
  list.comparison<Gt<T>>("gt." name);                         \
  list.comparison<Ge<T>>("ge." name)
#define KANSOKU_FORMS_ORDER_UNSIGNED(T, name) \
  KANSOKU_FORMS_ORDER(T, name);               \
  list.comparison<Lt<T>>("lo." name);         \
  list.comparison<Le<T>>("ls." name);         \
  list.comparison<Gt<T>>("hi." name);         \
  list.comparison<Ge<T>>("hs." name)

#define KANSOKU_FORMS_FLOAT_ORDER(T, flushes, name)                       \
  list.comparison<FCompare<T, Relation::kEq, false, flushes>>("eq" name); \
  list.comparison<FCompare<T, Relation::kNe, false, flushes>>("ne" name); \
  list.comparison<FCompare<T, Relation::kLt, false, flushes>>("lt" name); \
  list.comparison<FCompare<T, Relation::kLe, false, flushes>>("le" name); \
  list.comparison<FCompare<T, Relation::kGt, false, flushes>>("gt" name); \
  list.comparison<FCompare<T, Relation::kGe, false, flushes>>("ge" name); \
  list.comparison<FCompare<T, Relation::kEq, true, flushes>>("equ" name); \
  list.comparison<FCompare<T, Relation::kNe, true, flushes>>("neu" name); \
  list.comparison<FCompare<T, Relation::kLt, true, flushes>>("ltu" name); \
  list.comparison<FCompare<T, Relation::kLe, true, flushes>>("leu" name); \
  list.comparison<FCompare<T, Relation::kGt, true, flushes>>("gtu" name); \
  list.comparison<FCompare<T, Relation::kGe, true, flushes>>("geu" name); \
  list.comparison<FCompareNan<T, true>>("num" name);                      \
  list.comparison<FCompareNan<T, false>>("nan" name)

#define KANSOKU_FORMS_SET(T, relation, F, shape)                        \
  list.add("set." relation ".u32", T, shape, compare_to_value<F, U32>); \
  list.add("set." relation ".s32", T, shape, compare_to_value<F, U32>); \
  list.add("set." relation ".f32", T, shape, compare_to_value<F, float>)
#define KANSOKU_FORMS_SET_ORDER(T, name, shape) \
  KANSOKU_FORMS_SET(name, "eq", Eq<T>, shape);  \
  KANSOKU_FORMS_SET(name, "ne", Ne<T>, shape);  \
  KANSOKU_FORMS_SET(name, "lt", Lt<T>, shape);  \
  KANSOKU_FORMS_SET(name, "le", Le<T>, shape);  \
  KANSOKU_FORMS_SET(name, "gt", Gt<T>, shape);  \
  KANSOKU_FORMS_SET(name, "ge", Ge<T>, shape)
inline void list_comparison_forms(const Lister& list) {
  list_signless_comparisons<U16>(list, "eq.b16", "ne.b16");
  list_signless_comparisons<U32>(list, "eq.b32", "ne.b32");
  list_signless_comparisons<U64>(list, "eq.b64", "ne.b64");
  KANSOKU_FORMS_ORDER_UNSIGNED(U16, "u16");
  KANSOKU_FORMS_ORDER(S16, "s16");
  KANSOKU_FORMS_ORDER_UNSIGNED(U32, "u32");
  KANSOKU_FORMS_ORDER(S32, "s32");
  KANSOKU_FORMS_ORDER_UNSIGNED(U64, "u64");
  KANSOKU_FORMS_ORDER(S64, "s64");
  KANSOKU_FORMS_FLOAT_ORDER(float, false, ".f32");
  KANSOKU_FORMS_FLOAT_ORDER(float, true, ".ftz.f32");
  KANSOKU_FORMS_FLOAT_ORDER(double, false, ".f64");
  KANSOKU_FORMS_FLOAT_ORDER(Half, false, ".f16");
  KANSOKU_FORMS_FLOAT_ORDER(BFloat, false, ".bf16");
  list.add("selp", "b16", "iiip", select<U16>);
  list.add("selp", "u16", "iiip", select<U16>);
  list.add("selp", "s16", "iiip", select<U16>);
  list.add("selp", "b32", "iiip", select<U32>);
  list.add("selp", "u32", "iiip", select<U32>);
  list.add("selp", "s32", "iiip", select<U32>);
  list.add("selp", "f32", "iiip", select<U32>);
  list.add("selp", "b64", "lllp", select<U64>);
  list.add("selp", "u64", "lllp", select<U64>);
  list.add("selp", "s64", "lllp", select<U64>);
  list.add("selp", "f64", "lllp", select<U64>);
  list.add("slct", "b32.s32", "iiii", slct<U32, S32, false>);
  list.add("slct", "u32.s32", "iiii", slct<U32, S32, false>);
  list.add("slct", "s32.s32", "iiii", slct<U32, S32, false>);
  list.add("slct", "f32.s32", "iiii", slct<U32, S32, false>);
  list.add("slct", "b64.s32", "llli", slct<U64, S32, false>);
  list.add("slct", "f64.s32", "llli", slct<U64, S32, false>);
  list.add("slct", "b32.f32", "iiii", slct<U32, float, false>);
  list.add("slct", "f32.f32", "iiii", slct<U32, float, false>);
  list.add("slct.ftz", "f32.f32", "iiii", slct<U32, float, true>);
  list.add("slct", "f64.f32", "llli", slct<U64, float, false>);
  KANSOKU_FORMS_SET_ORDER(U32, "u32", "iii");
  KANSOKU_FORMS_SET_ORDER(S32, "s32", "iii");
}

// Forms in single and double precision. ftz and sat stand before the type.
#define KANSOKU_FORMS_FLOAT4(method, op, F, Plain)          \
  list.method<F<float, Plain, false, false>>(op, "f32");    \
  list.method<F<float, Plain, true, false>>(op, "ftz.f32"); \
  list.method<F<float, Plain, false, true>>(op, "sat.f32"); \
  list.method<F<float, Plain, true, true>>(op, "ftz.sat.f32")

inline void list_float_forms(const Lister& list) {
  KANSOKU_FORMS_FLOAT4(two, "add", FBinary, FAdd<float>);
  KANSOKU_FORMS_FLOAT4(two, "add.rn", FBinary, FAdd<float>);
  KANSOKU_FORMS_FLOAT4(two, "sub", FBinary, FSub<float>);
  KANSOKU_FORMS_FLOAT4(two, "sub.rn", FBinary, FSub<float>);
  KANSOKU_FORMS_FLOAT4(two, "mul", FBinary, FMul<float>);
  KANSOKU_FORMS_FLOAT4(two, "mul.rn", FBinary, FMul<float>);
  list.three<FFma<float>>("fma.rn", "f32");
  list.three<FFma<float, true>>("fma.rn", "ftz.f32");
  list.three<FFma<float, false, true>>("fma.rn", "sat.f32");
  list.three<FFma<float, true, true>>("fma.rn", "ftz.sat.f32");
  list.three<FFma<float>>("mad.rn", "f32");
  list.three<FFma<float, true>>("mad.rn", "ftz.f32");
  list.three<FFma<float, false, true>>("mad.rn", "sat.f32");
  list.three<FFma<float, true, true>>("mad.rn", "ftz.sat.f32");
  list.three<FFma<double>>("fma.rn", "f64");
  list.three<FFma<double>>("mad.rn", "f64");
  list.two<FBinary<double, FAdd<double>>>("add", "f64");
  list.two<FBinary<double, FAdd<double>>>("add.rn", "f64");
  list.two<FBinary<double, FSub<double>>>("sub", "f64");
  list.two<FBinary<double, FSub<double>>>("sub.rn", "f64");
  list.two<FBinary<double, FMul<double>>>("mul", "f64");
  list.two<FBinary<double, FMul<double>>>("mul.rn", "f64");
  list.two<FBinary<double, FDiv<double>>>("div.rn", "f64");
  list.two<FBinary<float, FDiv<float>>>("div.rn", "f32");
  list.two<FBinary<float, FDiv<float>, true>>("div.rn", "ftz.f32");
  list.two<FBinary<float, FDiv<float>>>("div.approx", "f32");
  list.two<FBinary<float, FDiv<float>, true>>("div.approx", "ftz.f32");
  list.two<FBinary<float, FDiv<float>>>("div.full", "f32");
  list.two<FBinary<float, FDiv<float>, true>>("div.full", "ftz.f32");
  list.one<FSign<float, FNeg<float>, false>>("neg", "f32");
  list.one<FSign<float, FNeg<float>, true>>("neg", "ftz.f32");
  list.one<FSign<double, FNeg<double>, false>>("neg", "f64");
  list.one<FSign<float, FAbs<float>, false>>("abs", "f32");
  list.one<FSign<float, FAbs<float>, true>>("abs", "ftz.f32");
  list.one<FSign<double, FAbs<double>, false>>("abs", "f64");
  list.two<FCopysign<float>>("copysign", "f32");
  list.two<FCopysign<double>>("copysign", "f64");
}

#define KANSOKU_FORMS_FLOAT_MINMAX(op, Plain)                                               \
  list.two<FBinary<float, Plain<float>>>(op, "f32");                                        \
  list.two<FBinary<float, Plain<float>, true>>(op, "ftz.f32");                              \
  list.two<FBinary<float, OrNan<float, Plain<float>>>>(op, "NaN.f32");                      \
  list.two<FBinary<float, OrNan<float, Plain<float>>, true>>(op, "ftz.NaN.f32");            \
  list.two<FBinary<float, XorSign<Plain<float>>>>(op, "xorsign.abs.f32");                   \
  list.two<FBinary<float, XorSign<OrNan<float, Plain<float>>>>>(op, "NaN.xorsign.abs.f32"); \
  list.two<FBinary<double, Plain<double>>>(op, "f64")
#define KANSOKU_FORMS_TESTP(T, name)                                                             \
  list.add("testp.finite", name, kTestShape<T>, compare<TestClass<T, FloatClass::kFinite>>);     \
  list.add("testp.infinite", name, kTestShape<T>, compare<TestClass<T, FloatClass::kInfinite>>); \
  list.add("testp.number", name, kTestShape<T>, compare<TestClass<T, FloatClass::kNumber>>);     \
  list.add("testp.notanumber", name, kTestShape<T>,                                              \
           compare<TestClass<T, FloatClass::kNotANumber>>);                                      \
  list.add("testp.normal", name, kTestShape<T>, compare<TestClass<T, FloatClass::kNormal>>);     \
  list.add("testp.subnormal", name, kTestShape<T>, compare<TestClass<T, FloatClass::kSubnormal>>)
template <class T>
inline constexpr const char* kTestShape = sizeof(T) > 4 ? "pl" : "pi";

inline void list_special_forms(const Lister& list) {
  KANSOKU_FORMS_FLOAT_MINMAX("min", FMin);
  KANSOKU_FORMS_FLOAT_MINMAX("max", FMax);
  KANSOKU_FORMS_TESTP(float, "f32");
  KANSOKU_FORMS_TESTP(double, "f64");
  list.one<FUnary<float, FRcp<float>>>("rcp.rn", "f32");
  list.one<FUnary<float, FRcp<float>, true>>("rcp.rn", "ftz.f32");
  list.one<FUnary<float, FRcp<float>>>("rcp.approx", "f32");
  list.one<FUnary<float, FRcp<float>, true>>("rcp.approx", "ftz.f32");
  list.one<FUnary<double, FRcp<double>>>("rcp.rn", "f64");
  list.one<FUnary<float, FSqrt<float>>>("sqrt.rn", "f32");
  list.one<FUnary<float, FSqrt<float>, true>>("sqrt.rn", "ftz.f32");
  list.one<FUnary<float, FSqrt<float>>>("sqrt.approx", "f32");
  list.one<FUnary<float, FSqrt<float>, true>>("sqrt.approx", "ftz.f32");
  list.one<FUnary<double, FSqrt<double>>>("sqrt.rn", "f64");
  list.one<FUnary<float, FRsqrt<float>>>("rsqrt.approx", "f32");
  list.one<FUnary<float, FRsqrt<float>, true>>("rsqrt.approx", "ftz.f32");
  list.one<FUnary<double, FRsqrt<double>>>("rsqrt.approx", "f64");
  list.one<FTurn<FSin, false>>("sin.approx", "f32");
  list.one<FTurn<FSin, true>>("sin.approx", "ftz.f32");
  list.one<FTurn<FCos, false>>("cos.approx", "f32");
  list.one<FTurn<FCos, true>>("cos.approx", "ftz.f32");
  list.one<FUnary<float, FLg2>>("lg2.approx", "f32");
  list.one<FUnary<float, FLg2, true>>("lg2.approx", "ftz.f32");
  list.one<FUnary<float, FEx2>>("ex2.approx", "f32");
  list.one<FUnary<float, FEx2, true>>("ex2.approx", "ftz.f32");
  list.one<FUnary<float, FTanh>>("tanh.approx", "f32");
}

/// Bfloats are widened by a shift, which the compiler makes vectors of by itself; their fma is the
/// exception.
template <class F>
inline constexpr bool kIsShort = std::is_same_v<typename F::A, BFloat>;
template <class F>
void two_halves(const Lister& list, const char* op, const char* name, const char* pair_name) {
  list.two<std::conditional_t<kIsShort<F>, F, Halves<F>>>(op, name);
  using Pair = PairBinary<F>;
  list.two<std::conditional_t<kIsShort<F>, Pair, HalfPairs<Pair, F>>>(op, pair_name);
}
template <class F>
void one_half(const Lister& list, const char* op, const char* name, const char* pair_name) {
  list.one<F>(op, name);
  list.one<PairUnary<F>>(op, pair_name);
}
template <class F>
void one_approximate(const Lister& list, const char* op, const char* name, const char* pair_name) {
  list.one<Halves<F>>(op, name);
  list.one<HalfPairs<PairUnary<F>, F>>(op, pair_name);
}
template <class F>
void three_halves(const Lister& list, const char* op, const char* name, const char* pair_name) {
  list.three<Halves<F>>(op, name);
  list.three<HalfPairs<PairTernary<F>, F>>(op, pair_name);
}
template <class Plain>
void half_arithmetic(const Lister& list, const char* op, const char* op_rounded) {
  two_halves<HBinary<Half, Plain>>(list, op, "f16", "f16x2");
  two_halves<HBinary<Half, Plain>>(list, op_rounded, "f16", "f16x2");
  two_halves<HBinary<Half, Plain, true>>(list, op, "ftz.f16", "ftz.f16x2");
  two_halves<HBinary<Half, Plain, false, true>>(list, op, "sat.f16", "sat.f16x2");
  two_halves<HBinary<BFloat, Plain>>(list, op, "bf16", "bf16x2");
  two_halves<HBinary<BFloat, Plain>>(list, op_rounded, "bf16", "bf16x2");
}
template <class Plain, class WithNan>
void half_extremes(const Lister& list, const char* op) {
  two_halves<HBinary<Half, Plain>>(list, op, "f16", "f16x2");
  two_halves<HBinary<Half, Plain, true>>(list, op, "ftz.f16", "ftz.f16x2");
  two_halves<HBinary<Half, WithNan>>(list, op, "NaN.f16", "NaN.f16x2");
  two_halves<HBinary<BFloat, Plain>>(list, op, "bf16", "bf16x2");
  two_halves<HBinary<BFloat, WithNan>>(list, op, "NaN.bf16", "NaN.bf16x2");
}

inline void list_half_forms(const Lister& list) {
  half_arithmetic<FAdd<float>>(list, "add", "add.rn");
  half_arithmetic<FSub<float>>(list, "sub", "sub.rn");
  half_arithmetic<FMul<float>>(list, "mul", "mul.rn");
  half_extremes<FMin<float>, OrNan<float, FMin<float>>>(list, "min");
  half_extremes<FMax<float>, OrNan<float, FMax<float>>>(list, "max");
  three_halves<HFma<Half>>(list, "fma.rn", "f16", "f16x2");
  three_halves<HFma<Half, true>>(list, "fma.rn", "ftz.f16", "ftz.f16x2");
  three_halves<HFma<Half, false, true>>(list, "fma.rn", "sat.f16", "sat.f16x2");
  three_halves<HFma<Half, false, false, true>>(list, "fma.rn", "relu.f16", "relu.f16x2");
  three_halves<HFma<BFloat>>(list, "fma.rn", "bf16", "bf16x2");
  three_halves<HFma<BFloat, false, false, true>>(list, "fma.rn", "relu.bf16", "relu.bf16x2");
  one_half<HSign<Half, false>>(list, "neg", "f16", "f16x2");
  one_half<HSign<Half, true>>(list, "abs", "f16", "f16x2");
  one_half<HSign<BFloat, false>>(list, "neg", "bf16", "bf16x2");
  one_half<HSign<BFloat, true>>(list, "abs", "bf16", "bf16x2");
  one_approximate<HUnary<Half, HalfEx2>>(list, "ex2.approx", "f16", "f16x2");
  one_approximate<HUnary<BFloat, FEx2, true>>(list, "ex2.approx", "ftz.bf16", "ftz.bf16x2");
  one_approximate<HUnary<Half, FTanh>>(list, "tanh.approx", "f16", "f16x2");
  one_approximate<HUnary<BFloat, FTanh>>(list, "tanh.approx", "bf16", "bf16x2");
}

#define KANSOKU_FORMS_CVT_INTEGER(To, to, From, from)              \
  list.one<IntegerToInteger<To, From, false>>("cvt", to "." from); \
  list.one<IntegerToInteger<To, From, true>>("cvt.sat", to "." from)
#define KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(From, from) \
  KANSOKU_FORMS_CVT_INTEGER(U8, "u8", From, from);    \
  KANSOKU_FORMS_CVT_INTEGER(U16, "u16", From, from);  \
  KANSOKU_FORMS_CVT_INTEGER(U32, "u32", From, from);  \
  KANSOKU_FORMS_CVT_INTEGER(U64, "u64", From, from);  \
  KANSOKU_FORMS_CVT_INTEGER(S8, "s8", From, from);    \
  KANSOKU_FORMS_CVT_INTEGER(S16, "s16", From, from);  \
  KANSOKU_FORMS_CVT_INTEGER(S32, "s32", From, from);  \
  KANSOKU_FORMS_CVT_INTEGER(S64, "s64", From, from)
#define KANSOKU_FORMS_CVT_TO_FLOATS(From, from)                   \
  list.one<IntegerToFloat<Half, From>>("cvt.rn", "f16." from);    \
  list.one<IntegerToFloat<BFloat, From>>("cvt.rn", "bf16." from); \
  list.one<IntegerToFloat<float, From>>("cvt.rn", "f32." from);   \
  list.one<IntegerToFloat<double, From>>("cvt.rn", "f64." from)

inline void list_integer_conversions(const Lister& list) {
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(U8, "u8");
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(U16, "u16");
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(U32, "u32");
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(U64, "u64");
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(S8, "s8");
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(S16, "s16");
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(S32, "s32");
  KANSOKU_FORMS_CVT_TO_ALL_INTEGERS(S64, "s64");
  KANSOKU_FORMS_CVT_TO_FLOATS(U8, "u8");
  KANSOKU_FORMS_CVT_TO_FLOATS(U16, "u16");
  KANSOKU_FORMS_CVT_TO_FLOATS(U32, "u32");
  KANSOKU_FORMS_CVT_TO_FLOATS(U64, "u64");
  KANSOKU_FORMS_CVT_TO_FLOATS(S8, "s8");
  KANSOKU_FORMS_CVT_TO_FLOATS(S16, "s16");
  KANSOKU_FORMS_CVT_TO_FLOATS(S32, "s32");
  KANSOKU_FORMS_CVT_TO_FLOATS(S64, "s64");
}

#define KANSOKU_FORMS_FLOAT_TO_INTEGER(To, to, From, from)                            \
  list.one<FloatToInteger<To, From, ToInteger::kNearest, false>>("cvt.rni", to from); \
  list.one<FloatToInteger<To, From, ToInteger::kZero, false>>("cvt.rzi", to from);    \
  list.one<FloatToInteger<To, From, ToInteger::kDown, false>>("cvt.rmi", to from);    \
  list.one<FloatToInteger<To, From, ToInteger::kUp, false>>("cvt.rpi", to from)
#define KANSOKU_FORMS_FTZ_TO_INTEGER(To, to)                                                \
  list.one<FloatToInteger<To, float, ToInteger::kNearest, true>>("cvt.rni.ftz", to ".f32"); \
  list.one<FloatToInteger<To, float, ToInteger::kZero, true>>("cvt.rzi.ftz", to ".f32");    \
  list.one<FloatToInteger<To, float, ToInteger::kDown, true>>("cvt.rmi.ftz", to ".f32");    \
  list.one<FloatToInteger<To, float, ToInteger::kUp, true>>("cvt.rpi.ftz", to ".f32")
#define KANSOKU_FORMS_FLOAT_TO_INTEGERS(From, from)       \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(U8, "u8", From, from);   \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(U16, "u16", From, from); \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(U32, "u32", From, from); \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(U64, "u64", From, from); \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(S8, "s8", From, from);   \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(S16, "s16", From, from); \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(S32, "s32", From, from); \
  KANSOKU_FORMS_FLOAT_TO_INTEGER(S64, "s64", From, from)

inline void list_float_to_integer_forms(const Lister& list) {
  KANSOKU_FORMS_FLOAT_TO_INTEGERS(float, ".f32");
  KANSOKU_FORMS_FLOAT_TO_INTEGERS(double, ".f64");
  KANSOKU_FORMS_FLOAT_TO_INTEGERS(Half, ".f16");
  KANSOKU_FORMS_FTZ_TO_INTEGER(U32, "u32");
  KANSOKU_FORMS_FTZ_TO_INTEGER(S32, "s32");
  KANSOKU_FORMS_FTZ_TO_INTEGER(U64, "u64");
  KANSOKU_FORMS_FTZ_TO_INTEGER(S64, "s64");
}

template <class T>
void whole_numbers(const Lister& list, const char* name) {
  list.one<FloatToWhole<T, ToInteger::kNearest, false, false>>("cvt.rni", name);
  list.one<FloatToWhole<T, ToInteger::kZero, false, false>>("cvt.rzi", name);
  list.one<FloatToWhole<T, ToInteger::kDown, false, false>>("cvt.rmi", name);
  list.one<FloatToWhole<T, ToInteger::kUp, false, false>>("cvt.rpi", name);
}

inline void list_float_conversions(const Lister& list) {
  whole_numbers<float>(list, "f32.f32");
  whole_numbers<double>(list, "f64.f64");
  whole_numbers<Half>(list, "f16.f16");
  list.one<FloatToWhole<float, ToInteger::kNearest, true, false>>("cvt.rni.ftz", "f32.f32");
  list.one<FloatToWhole<float, ToInteger::kZero, true, false>>("cvt.rzi.ftz", "f32.f32");
  list.one<FloatToWhole<float, ToInteger::kDown, true, false>>("cvt.rmi.ftz", "f32.f32");
  list.one<FloatToWhole<float, ToInteger::kUp, true, false>>("cvt.rpi.ftz", "f32.f32");
  list.one<FloatToFloat<float, float, false, false>>("cvt", "f32.f32");
  list.one<FloatToFloat<float, float, true, false>>("cvt.ftz", "f32.f32");
  list.one<FloatToFloat<float, float, false, true>>("cvt.sat", "f32.f32");
  list.one<FloatToFloat<float, float, true, true>>("cvt.ftz.sat", "f32.f32");
  list.one<FloatToFloat<double, float, false, false>>("cvt", "f64.f32");
  list.one<FloatToFloat<double, float, true, false>>("cvt.ftz", "f64.f32");
  list.one<FloatToFloat<float, double, false, false>>("cvt.rn", "f32.f64");
  list.one<FloatToFloat<float, double, true, false>>("cvt.rn.ftz", "f32.f64");
  list.one<FloatToFloat<float, double, false, true>>("cvt.rn.sat", "f32.f64");
  list.one<FloatToFloat<double, double, false, true>>("cvt.sat", "f64.f64");
  list.one<FloatToFloat<float, Half, false, false>>("cvt", "f32.f16");
  list.one<FloatToFloat<float, Half, true, false>>("cvt.ftz", "f32.f16");
  list.one<FloatToFloat<double, Half, false, false>>("cvt", "f64.f16");
  list.one<FloatToFloat<Half, float, false, false>>("cvt.rn", "f16.f32");
  list.one<FloatToFloat<Half, float, true, false>>("cvt.rn.ftz", "f16.f32");
  list.one<FloatToFloat<Half, float, false, true>>("cvt.rn.sat", "f16.f32");
  list.one<FloatToFloat<Half, float, false, false, true>>("cvt.rn.relu", "f16.f32");
  list.one<FloatToFloat<Half, double, false, false>>("cvt.rn", "f16.f64");
  list.one<FloatToFloat<float, BFloat, false, false>>("cvt", "f32.bf16");
  list.one<FloatToFloat<BFloat, float, false, false>>("cvt.rn", "bf16.f32");
  list.one<FloatToFloat<BFloat, float, false, false, true>>("cvt.rn.relu", "bf16.f32");
  list.one<DirectedHalf<Half, Toward::kZero>>("cvt.rz", "f16.f32");
  list.one<DirectedHalf<Half, Toward::kDown>>("cvt.rm", "f16.f32");
  list.one<DirectedHalf<Half, Toward::kUp>>("cvt.rp", "f16.f32");
  list.one<DirectedHalf<Half, Toward::kZero, true>>("cvt.rz.relu", "f16.f32");
  list.one<DirectedHalf<BFloat, Toward::kZero>>("cvt.rz", "bf16.f32");
  list.one<DirectedHalf<BFloat, Toward::kZero, true>>("cvt.rz.relu", "bf16.f32");
  list.two<TwoToHalves<Half, false>>("cvt.rn", "f16x2.f32");
  list.two<TwoToHalves<Half, true>>("cvt.rn.relu", "f16x2.f32");
  list.two<TwoToHalves<BFloat, false>>("cvt.rn", "bf16x2.f32");
  list.two<TwoToHalves<BFloat, true>>("cvt.rn.relu", "bf16x2.f32");
  list.one<ToTf32>("cvt.rna", "tf32.f32");
}

/// Moves of whole registers, and steps that the decoder inserts: names that begin with `.` are none
/// of PTX.
inline void list_moves(const Lister& list) {
  list.one<Copy<U32>>("mov", "b16");
  list.one<Copy<U32>>("mov", "u16");
  list.one<Copy<U32>>("mov", "s16");
  list.one<Copy<U32>>("mov", "f16");
  list.one<Copy<U32>>("mov", "bf16");
  list.one<Copy<U32>>("mov", "b32");
  list.one<Copy<U32>>("mov", "u32");
  list.one<Copy<U32>>("mov", "s32");
  list.one<Copy<U32>>("mov", "f32");
  list.one<Copy<U32>>("mov", "f16x2");
  list.one<Copy<U32>>("mov", "bf16x2");
  list.one<Copy<U64>>("mov", "b64");
  list.one<Copy<U64>>("mov", "u64");
  list.one<Copy<U64>>("mov", "s64");
  list.one<Copy<U64>>("mov", "f64");
  list.one<Extend<U16, S8>>(".extend", "s8.b16");
  list.one<Extend<U32, S8>>(".extend", "s8.b32");
  list.one<Extend<U64, S8>>(".extend", "s8.b64");
  list.one<Extend<U32, S16>>(".extend", "s16.b32");
  list.one<Extend<U64, S16>>(".extend", "s16.b64");
  list.one<IntegerToInteger<S64, S32, false>>(".extend", "s32.b64");
  list.one<IntegerToInteger<U64, U32, false>>(".extend", "u32.b64");
  list.one<Truncate>(".truncate", "b64");
}

/// Named by the width of the whole and the number of parts.
inline void list_warp_forms(const Lister& list) {
  list.add(".pack", "b16.2", "iii", pack<8, 2>);
  list.add(".pack", "b32.2", "iii", pack<16, 2>);
  list.add(".pack", "b32.4", "iiiii", pack<8, 4>);
  list.add(".pack", "b64.2", "lii", pack<32, 2>);
  list.add(".pack", "b64.4", "liiii", pack<16, 4>);
  list.add(".unpack", "b16.2", "iii", unpack<8, 2>);
  list.add(".unpack", "b32.2", "iii", unpack<16, 2>);
  list.add(".unpack", "b32.4", "iiiii", unpack<8, 4>);
  list.add(".unpack", "b64.2", "iil", unpack<32, 2>);
  list.add(".unpack", "b64.4", "iiiil", unpack<16, 4>);
  list.add(".shfl", "b32", "iiii", shuffle);
}

inline void list_forms(const Lister& list) {
  list_integer_forms(list);
  list_bit_forms(list);
  list_carry_forms(list);
  list_video_forms(list);
  list_comparison_forms(list);
  list_float_forms(list);
  list_special_forms(list);
  list_half_forms(list);
  list_integer_conversions(list);
  list_float_to_integer_forms(list);
  list_float_conversions(list);
  list_moves(list);
  list_warp_forms(list);
}

}  // namespace
}  // namespace kansoku::gpu::exec
