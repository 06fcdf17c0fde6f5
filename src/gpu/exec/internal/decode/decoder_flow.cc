// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>

#include "gpu/exec/internal/decode/function_decoder.h"
#include "gpu/exec/internal/ops/control.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::size_t kOwnParamsMax = 5;

/// Functions that have no body in PTX but in the executor, with the sizes of their parameters.
struct OwnFunction {
  std::string_view name;
  std::array<std::uint64_t, kOwnParamsMax> param_bytes;  // 0: no more
  Handler run;
};
constexpr std::array kOwnFunctions{
    OwnFunction{"vprintf", {8, 8}, run_printf},
    OwnFunction{"__assertfail", {8, 8, 4, 8, 8}, run_assertion},
};

/// Null if the executor has no such function.
Handler handler_of_own(const ptx::Function& function) {
  for (const OwnFunction& own : kOwnFunctions) {
    if (function.name != own.name) continue;
    if (function.params.size() > kOwnParamsMax) return nullptr;
    std::array<std::uint64_t, kOwnParamsMax> bytes{};
    std::transform(function.params.begin(), function.params.end(), bytes.begin(),
                   [](const ptx::Variable& param) { return param.bytes(); });
    return bytes == own.param_bytes ? own.run : nullptr;
  }
  return nullptr;
}

}  // namespace

Result<void> FunctionDecoder::branch(const Instruction& in) {
  const Operand& target = at(in, 0);
  fixups_.push_back({out_.code.size(), function_.labels[target.index].instruction});
  Code& code = emit(in.guard == kNoIndex ? run_branch : run_branch_if);
  if (in.guard == kNoIndex) return {};
  code.d = slots_[in.guard];
  code.extra = in.is_guard_negated ? 1 : 0;
  return {};
}

/// Places, in this frame, of the variables that a call names.
Result<void> FunctionDecoder::call_places(const Instruction& in, const Operand& list,
                                          std::vector<CompiledFunction::Place>& out) {
  for (std::uint32_t i = 0; i < list.count; ++i) {
    const Operand& own = function_.operands[list.index + i];
    const auto place = [&out](std::uint32_t offset, const ptx::Variable& variable) {
      out.push_back({offset, static_cast<std::uint32_t>(variable.bytes())});
    };
    switch (own.kind) {
      case OperandKind::kSink:
        out.push_back({});
        break;
      case OperandKind::kLocalVariable:
        place(variable_offsets_[own.index], function_.variables[own.index]);
        break;
      case OperandKind::kParameter:
        if (function_.is_entry) return unsupported(in, "a kernel's parameter as an argument");
        place(param_offsets_[own.index], function_.params[own.index]);
        break;
      case OperandKind::kReturn:
        place(return_offsets_[own.index], function_.returns[own.index]);
        break;
      default:
        return unsupported(in, "expected arguments in .param variables");
    }
  }
  return {};
}

/// Whom a register calls shows only then; the prototype says no more than the arguments do.
Result<void> FunctionDecoder::call(const Instruction& in) {
  const std::size_t callee_at = at(in, 0).kind == OperandKind::kList ? 1 : 0;
  const Operand& callee = at(in, callee_at);
  const bool is_direct = callee.kind == OperandKind::kFunction;
  if (!is_direct && callee.kind != OperandKind::kRegister)
    return unsupported(in, "a call that is not supported");
  CompiledFunction::CallSite site;
  const Operand empty;
  const bool has_arguments =
      callee_at + 1 < in.operand_count && at(in, callee_at + 1).kind == OperandKind::kList;
  TRY_VOID(call_places(in, has_arguments ? at(in, callee_at + 1) : empty, site.arguments));
  TRY_VOID(call_places(in, callee_at == 1 ? at(in, 0) : empty, site.results));
  const auto number = static_cast<std::uint32_t>(out_.calls.size());
  if (!is_direct) {
    TRY(const auto target, source(in, callee, Type::kU64, true));
    Code& code = emit(run_call_of_register);
    code.a = target;
    code.extra = number;
    out_.calls.push_back(std::move(site));
    return {};
  }
  const ptx::Function& function = module_.functions[callee.index];
  if (site.arguments.size() != function.params.size() ||
      site.results.size() != function.returns.size())
    return unsupported(in, "arguments that do not match the function");
  const auto differs = [](const CompiledFunction::Place& own, const ptx::Variable& its) {
    return own.bytes != its.bytes();
  };
  bool has_other_size = false;
  for (std::size_t i = 0; i < site.arguments.size(); ++i)
    has_other_size = has_other_size || differs(site.arguments[i], function.params[i]);
  for (std::size_t i = 0; i < site.results.size(); ++i)
    has_other_size = has_other_size ||
                     (site.results[i].bytes != 0 && differs(site.results[i], function.returns[i]));
  if (has_other_size)
    return unsupported(in, "an argument with a size that does not match the function");
  site.callee = callee.index;
  const auto handler = function.has_body ? run_call : handler_of_own(function);
  if (handler == nullptr) return unsupported(in, "a function without a body");
  emit(handler).extra = number;
  out_.calls.push_back(std::move(site));
  return {};
}

Result<void> FunctionDecoder::ret(const Instruction& in) {
  static_cast<void>(in);
  emit(function_.is_entry ? run_exit : run_return);
  return {};
}

/// mov.pred of 0 or anything else: d ^ d, negated for the latter.
Result<void> FunctionDecoder::predicate_constant(const Instruction& in) {
  TRY(const auto d, predicate(in, at(in, 0)));
  Code& code = emit(run_predicate_logic);
  code.d = code.a = code.b = d;
  code.extra = 2 | (at(in, 1).value != 0 ? 16 : 0);
  return {};
}

/// bar{.sync}, bar.arrive, bar.warp.sync, barrier{.cta}.sync.
Result<void> FunctionDecoder::barrier(const Instruction& in) {
  if (in.has(Suffix::kWarp)) {
    TRY(const auto mask, source(in, at(in, 0), Type::kB32, false));
    emit(run_warp_barrier).a = mask;
    return {};
  }
  if (in.has(Suffix::kRed)) return reducing_barrier(in);
  const bool arrives = in.has(Suffix::kArrive);
  if (in.operand_count > 2 || (arrives && in.operand_count != 2))
    return unsupported(in, "another number of operands");
  std::uint16_t number = constant(0, false), count = kNoSlot;
  if (in.operand_count > 0) {
    TRY(number, source(in, at(in, 0), Type::kU32, false));
  }
  if (in.operand_count > 1) {
    TRY(count, source(in, at(in, 1), Type::kU32, false));
  }
  Code& code = emit(arrives ? run_barrier_arrive : run_barrier);
  code.a = number;
  code.b = count;
  return {};
}

/// bar.red, barrier.red: every thread arrives with a predicate and gets how many are true, or
/// whether all are or one is.
Result<void> FunctionDecoder::reducing_barrier(const Instruction& in) {
  const bool has_count = in.operand_count == 4, is_count = in.has(Suffix::kPopc);
  if (in.type() != (is_count ? Type::kU32 : Type::kPred) ||
      (!is_count && !in.has(Suffix::kAnd) && !in.has(Suffix::kOr)))
    return unsupported(in, "a form that is not supported");
  TRY(const auto number, source(in, at(in, 1), Type::kU32, false));
  std::uint16_t count = kNoSlot;
  if (has_count) {
    TRY(count, source(in, at(in, 2), Type::kU32, false));
  }
  const Operand& vote = at(in, has_count ? 3 : 2);
  TRY(const auto voted, predicate(in, vote));
  Destination d;
  if (is_count) {
    TRY(d, destination(in, at(in, 0), Type::kU32));
  } else {
    TRY(d.slot, predicate(in, at(in, 0)));
  }
  Code& arrival = emit(run_barrier_vote);
  arrival.a = number;
  arrival.b = count;
  arrival.c = voted;
  arrival.extra = vote.is_negated ? 1 : 0;
  Code& result = emit(is_count ? run_barrier_count : run_barrier_test);
  result.d = d.slot;
  result.extra = in.has(Suffix::kAnd) ? 1 : 0;
  return finish(d);
}

/// 32 bits, as lanes exchange them; the predicate may be left out.
Result<FunctionDecoder::PairDestination> FunctionDecoder::destination_pair(const Instruction& in,
                                                                           const Operand& operand) {
  PairDestination pair;
  const bool is_pair = operand.kind == OperandKind::kPair;
  if (is_pair && function_.operands[operand.index + 1].kind != OperandKind::kSink) {
    TRY(const auto second, predicate(in, function_.operands[operand.index + 1]));
    pair.predicate_bits = (std::uint32_t{second} + 1) << 16;
  }
  TRY(pair.value,
      destination(in, is_pair ? function_.operands[operand.index] : operand, Type::kB32));
  return pair;
}

Result<void> FunctionDecoder::shuffle(const Instruction& in) {
  if (!in.has(Suffix::kSync) || in.operand_count != 5)
    return unsupported(in, "shuffles without .sync");
  if (in.type() != Type::kB32) return unsupported(in, "a form that is not supported");
  TRY(const auto a, source(in, at(in, 1), Type::kB32, false));
  TRY(const auto b, source(in, at(in, 2), Type::kB32, false));
  TRY(const auto c, source(in, at(in, 3), Type::kB32, false));
  TRY(const auto mask, source(in, at(in, 4), Type::kB32, false));
  std::uint32_t extra = in.has(Suffix::kUp)     ? 0
                        : in.has(Suffix::kDown) ? 1
                        : in.has(Suffix::kBfly) ? 2
                                                : 3;
  extra |= std::uint32_t{mask} << 2;
  TRY(const auto d, destination_pair(in, at(in, 0)));
  Code& code = emit(find_form(isa_, ".shfl.b32")->run);
  code.d = d.value.slot;
  code.a = a;
  code.b = b;
  code.c = c;
  code.extra = extra | d.predicate_bits;
  return finish(d.value);
}

Result<void> FunctionDecoder::vote(const Instruction& in) {
  if (!in.has(Suffix::kSync) || in.operand_count != 3)
    return unsupported(in, "votes without .sync");
  if (in.type() != (in.has(Suffix::kBallot) ? Type::kB32 : Type::kPred))
    return unsupported(in, "a form that is not supported");
  TRY(const auto a, predicate(in, at(in, 1)));
  TRY(const auto mask, source(in, at(in, 2), Type::kB32, false));
  const bool is_ballot = in.has(Suffix::kBallot);
  std::uint32_t extra = in.has(Suffix::kAll) ? 0 : in.has(Suffix::kAny) ? 1 : 2;
  if (at(in, 1).is_negated) extra |= 4;
  Destination d;
  if (is_ballot) {
    TRY(d, destination(in, at(in, 0), Type::kB32));
  } else {
    TRY(d.slot, predicate(in, at(in, 0)));
  }
  Code& code = emit(is_ballot ? run_ballot : run_vote);
  code.d = d.slot;
  code.a = a;
  code.b = mask;
  code.extra = extra;
  return finish(d);
}

Result<void> FunctionDecoder::match(const Instruction& in) {
  const bool wide = in.type() == Type::kB64;
  if (!wide && in.type() != Type::kB32) return unsupported(in, "a form that is not supported");
  TRY(const auto a, source(in, at(in, 1), in.type(), wide));
  TRY(const auto mask, source(in, at(in, 2), Type::kB32, false));
  const std::uint32_t extra = (in.has(Suffix::kAll) ? 1U : 0U) | (wide ? 2U : 0U);
  TRY(const auto d, destination_pair(in, at(in, 0)));
  Code& code = emit(run_match);
  code.d = d.value.slot;
  code.a = a;
  code.b = mask;
  code.extra = extra | d.predicate_bits;
  return finish(d.value);
}

Result<void> FunctionDecoder::redux(const Instruction& in) {
  if (ptx::bits_of(in.type()) != 32 || ptx::is_float(in.type()))
    return unsupported(in, "a form that is not supported");
  TRY(const auto a, source(in, at(in, 1), in.type(), false));
  TRY(const auto mask, source(in, at(in, 2), Type::kB32, false));
  const bool is_signed = ptx::is_signed(in.type());
  std::uint32_t extra = 0;
  if (in.has(Suffix::kMin)) extra = is_signed ? 3 : 1;
  if (in.has(Suffix::kMax)) extra = is_signed ? 4 : 2;
  if (in.has(Suffix::kAnd)) extra = 5;
  if (in.has(Suffix::kOr)) extra = 6;
  if (in.has(Suffix::kXor)) extra = 7;
  TRY(const auto d, destination(in, at(in, 0), in.type()));
  Code& code = emit(run_redux);
  code.d = d.slot;
  code.a = a;
  code.b = mask;
  code.extra = extra;
  return finish(d);
}

}  // namespace kansoku::gpu::exec
