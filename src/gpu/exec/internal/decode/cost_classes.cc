// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/cost_classes.h"

#include <algorithm>
#include <array>

namespace kansoku::gpu::exec {
namespace {

using ptx::Op;
using ptx::Type;

struct OpCost {
  Op op;
  CostClass cost;
};
/// Whatever their types are; all others are arithmetic.
constexpr std::array kOps{
    OpCost{Op::kRem, CostClass::kDivision},
    OpCost{Op::kDiv, CostClass::kDivision},
    OpCost{Op::kCvt, CostClass::kConversion},
    OpCost{Op::kSin, CostClass::kSpecial},
    OpCost{Op::kCos, CostClass::kSpecial},
    OpCost{Op::kLg2, CostClass::kSpecial},
    OpCost{Op::kEx2, CostClass::kSpecial},
    OpCost{Op::kTanh, CostClass::kSpecial},
    OpCost{Op::kRsqrt, CostClass::kSpecial},
    OpCost{Op::kShfl, CostClass::kExchange},
    OpCost{Op::kVote, CostClass::kExchange},
    OpCost{Op::kMatch, CostClass::kExchange},
    OpCost{Op::kActivemask, CostClass::kExchange},
    OpCost{Op::kRedux, CostClass::kExchange},
    OpCost{Op::kElect, CostClass::kExchange},
    OpCost{Op::kMovmatrix, CostClass::kExchange},
    OpCost{Op::kMma, CostClass::kMatrix},
    OpCost{Op::kWmma, CostClass::kMatrix},
    OpCost{Op::kBra, CostClass::kControl},
    OpCost{Op::kBrx, CostClass::kControl},
    OpCost{Op::kCall, CostClass::kControl},
    OpCost{Op::kRet, CostClass::kControl},
    OpCost{Op::kExit, CostClass::kControl},
    OpCost{Op::kTrap, CostClass::kControl},
    OpCost{Op::kBrkpt, CostClass::kControl},
    OpCost{Op::kNanosleep, CostClass::kControl},
    OpCost{Op::kPmevent, CostClass::kControl},
    OpCost{Op::kPrefetch, CostClass::kControl},
    OpCost{Op::kPrefetchu, CostClass::kControl},
    OpCost{Op::kGriddepcontrol, CostClass::kControl},
    OpCost{Op::kBar, CostClass::kBarrier},
    OpCost{Op::kBarrier, CostClass::kBarrier},
    OpCost{Op::kMembar, CostClass::kBarrier},
    OpCost{Op::kFence, CostClass::kBarrier},
    OpCost{Op::kCp, CostClass::kOther},  // commit and wait; copies are accesses
};

bool is_one_of(Type type, std::initializer_list<Type> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool multiplies(Op op) {
  constexpr std::array kMultiply{Op::kMul,   Op::kMad,  Op::kMadc, Op::kMul24,
                                 Op::kMad24, Op::kDp4a, Op::kDp2a};
  return std::find(kMultiply.begin(), kMultiply.end(), op) != kMultiply.end();
}

}  // namespace

CostClass cost_class_of(const ptx::Instruction& in) {
  const auto* const found =
      std::find_if(kOps.begin(), kOps.end(), [&](const OpCost& row) { return row.op == in.op; });
  const bool is_approximate = in.has(ptx::Suffix::kApprox);
  // One of the approximate units; what is exact is a sequence.
  if (in.op == Op::kRcp || in.op == Op::kSqrt || (in.op == Op::kDiv && is_approximate))
    return is_approximate ? CostClass::kSpecial : CostClass::kDivision;
  if (found != kOps.end()) return found->cost;
  const Type type = in.type();
  if (is_one_of(type, {Type::kF16, Type::kF16x2, Type::kBf16, Type::kBf16x2}))
    return CostClass::kHalf;
  if (type == Type::kF64) return CostClass::kDouble;
  if (multiplies(in.op) && type != Type::kF32) return CostClass::kMultiply;
  return CostClass::kArithmetic;
}

}  // namespace kansoku::gpu::exec
