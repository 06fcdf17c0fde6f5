// SPDX-License-Identifier: Apache-2.0
// Operations that round towards zero, down or up: the machine's rounding mode is set around the
// loop. Built with -frounding-math.
#include <cfenv>

#include "gpu/exec/internal/decode/forms_list.h"

namespace kansoku::gpu::exec {
namespace {

class RoundingMode {
 public:
  explicit RoundingMode(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
  RoundingMode(const RoundingMode&) = delete;
  RoundingMode& operator=(const RoundingMode&) = delete;
  ~RoundingMode() { std::fesetround(before_); }

 private:
  int before_;
};

template <class F, int mode>
const Code* rounded_one(Warp& warp, const Code* code) {
  const RoundingMode guard(mode);
  return unary_each<F>(warp, code);
}
template <class F, int mode>
const Code* rounded_two(Warp& warp, const Code* code) {
  const RoundingMode guard(mode);
  return binary_each<F>(warp, code);
}
template <class F, int mode>
const Code* rounded_three(Warp& warp, const Code* code) {
  const RoundingMode guard(mode);
  using T = typename F::A;
  using C = Container<T>;
  const C* const a = in<C>(warp, code->a);
  const C* const b = in<C>(warp, code->b);
  const C* const c = in<C>(warp, code->c);
  C* const d = out<C>(warp, code->d);
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<std::uint32_t>(__builtin_ctz(rest));
    d[i] = to_lane<T>(F::apply(from_lane<T>(a[i]), from_lane<T>(b[i]), from_lane<T>(c[i])));
  }
  return code + 1;
}

#define KANSOKU_ROUNDED_TWO(op, Plain)                                                             \
  list.add(op, "f32", "iii", rounded_two<FBinary<float, Plain<float>>, mode>);                     \
  list.add(op, "ftz.f32", "iii", rounded_two<FBinary<float, Plain<float>, true>, mode>);           \
  list.add(op, "sat.f32", "iii", rounded_two<FBinary<float, Plain<float>, false, true>, mode>);    \
  list.add(op, "ftz.sat.f32", "iii", rounded_two<FBinary<float, Plain<float>, true, true>, mode>); \
  list.add(op, "f64", "lll", rounded_two<FBinary<double, Plain<double>>, mode>)

struct RoundedNames {
  const char *add, *sub, *mul, *fma, *mad, *div, *rcp, *sqrt, *cvt;
};

template <int mode>
void list_rounded(const Lister& list, const RoundedNames& names) {
  KANSOKU_ROUNDED_TWO(names.add, FAdd);
  KANSOKU_ROUNDED_TWO(names.sub, FSub);
  KANSOKU_ROUNDED_TWO(names.mul, FMul);
  for (const char* const op : {names.fma, names.mad}) {
    list.add(op, "f32", "iiii", rounded_three<FFma<float>, mode>);
    list.add(op, "ftz.f32", "iiii", rounded_three<FFma<float, true>, mode>);
    list.add(op, "sat.f32", "iiii", rounded_three<FFma<float, false, true>, mode>);
    list.add(op, "ftz.sat.f32", "iiii", rounded_three<FFma<float, true, true>, mode>);
    list.add(op, "f64", "llll", rounded_three<FFma<double>, mode>);
  }
  list.add(names.div, "f32", "iii", rounded_two<FBinary<float, FDiv<float>>, mode>);
  list.add(names.div, "ftz.f32", "iii", rounded_two<FBinary<float, FDiv<float>, true>, mode>);
  list.add(names.div, "f64", "lll", rounded_two<FBinary<double, FDiv<double>>, mode>);
  list.add(names.rcp, "f32", "ii", rounded_one<FUnary<float, FRcp<float>>, mode>);
  list.add(names.rcp, "ftz.f32", "ii", rounded_one<FUnary<float, FRcp<float>, true>, mode>);
  list.add(names.rcp, "f64", "ll", rounded_one<FUnary<double, FRcp<double>>, mode>);
  list.add(names.sqrt, "f32", "ii", rounded_one<FUnary<float, FSqrt<float>>, mode>);
  list.add(names.sqrt, "ftz.f32", "ii", rounded_one<FUnary<float, FSqrt<float>, true>, mode>);
  list.add(names.sqrt, "f64", "ll", rounded_one<FUnary<double, FSqrt<double>>, mode>);
  list.add(names.cvt, "f32.f64", "il",
           rounded_one<FloatToFloat<float, double, false, false>, mode>);
  list.add(names.cvt, "f32.u32", "ii", rounded_one<IntegerToFloat<float, U32>, mode>);
  list.add(names.cvt, "f32.s32", "ii", rounded_one<IntegerToFloat<float, S32>, mode>);
  list.add(names.cvt, "f32.u64", "il", rounded_one<IntegerToFloat<float, U64>, mode>);
  list.add(names.cvt, "f32.s64", "il", rounded_one<IntegerToFloat<float, S64>, mode>);
  list.add(names.cvt, "f64.u64", "ll", rounded_one<IntegerToFloat<double, U64>, mode>);
  list.add(names.cvt, "f64.s64", "ll", rounded_one<IntegerToFloat<double, S64>, mode>);
}

}  // namespace

void list_rounded_forms(const FormSink& sink) {
  const Lister list(sink);
  list_rounded<FE_TOWARDZERO>(list, {"add.rz", "sub.rz", "mul.rz", "fma.rz", "mad.rz", "div.rz",
                                     "rcp.rz", "sqrt.rz", "cvt.rz"});
  list_rounded<FE_DOWNWARD>(list, {"add.rm", "sub.rm", "mul.rm", "fma.rm", "mad.rm", "div.rm",
                                   "rcp.rm", "sqrt.rm", "cvt.rm"});
  list_rounded<FE_UPWARD>(list, {"add.rp", "sub.rp", "mul.rp", "fma.rp", "mad.rp", "div.rp",
                                 "rcp.rp", "sqrt.rp", "cvt.rp"});
}

}  // namespace kansoku::gpu::exec
