// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/function_decoder.h"
#include "gpu/exec/internal/ops/control.h"

namespace kansoku::gpu::exec {

Result<void> FunctionDecoder::branch(const Instruction& in) {
  const Operand& target = at(in, 0);
  fixups_.push_back({out_.code.size(), function_.labels[target.index].instruction});
  Code& code = emit(in.guard == kNoIndex ? run_branch : run_branch_if);
  if (in.guard == kNoIndex) return {};
  code.d = slots_[in.guard];
  code.extra = in.is_guard_negated ? 1 : 0;
  return {};
}

Result<void> FunctionDecoder::call(const Instruction& in) {
  const bool has_results = at(in, 0).kind == OperandKind::kList;
  const Operand& callee = at(in, has_results ? 1 : 0);
  if (callee.kind != OperandKind::kFunction) return unsupported(in, "an indirect call");
  const ptx::Function& function = module_.functions[callee.index];
  CompiledFunction::CallSite site;
  site.callee = callee.index;
  // The callee's frame is laid out like this one's: parameters, then results.
  std::uint32_t place = 0;
  const auto next_place = [&](const ptx::Variable& variable) {
    const std::uint32_t align = variable.alignment();
    place = (place + align - 1) / align * align;
    const std::uint32_t offset = place;
    place += static_cast<std::uint32_t>(variable.bytes());
    return offset;
  };
  const auto copies = [&](const Operand* list, const std::vector<ptx::Variable>& variables,
                          std::vector<CompiledFunction::Copy>& out) -> Result<void> {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const std::uint32_t callee_offset = next_place(variables[i]);
      const Operand& own = function_.operands[list->index + i];
      if (own.kind == OperandKind::kSink) continue;
      std::uint32_t offset = 0;
      const ptx::Variable* variable = nullptr;
      switch (own.kind) {
        case OperandKind::kLocalVariable:
          offset = variable_offsets_[own.index];
          variable = &function_.variables[own.index];
          break;
        case OperandKind::kParameter:
          offset = param_offsets_[own.index];
          variable = &function_.params[own.index];
          break;
        case OperandKind::kReturn:
          offset = return_offsets_[own.index];
          variable = &function_.returns[own.index];
          break;
        default:
          return unsupported(in, "expected arguments in .param variables");
      }
      if (own.kind == OperandKind::kParameter && function_.is_entry)
        return unsupported(in, "a kernel's parameter as an argument");
      if (variable->bytes() != variables[i].bytes())
        return unsupported(in, "an argument with a size that does not match the function");
      out.push_back({offset, callee_offset, static_cast<std::uint32_t>(variables[i].bytes())});
    }
    return {};
  };
  const Operand empty;
  const std::size_t arguments_at = has_results ? 2 : 1;
  const Operand& arguments = arguments_at < in.operand_count ? at(in, arguments_at) : empty;
  const Operand& results = has_results ? at(in, 0) : empty;
  if (arguments.count != function.params.size() || results.count != function.returns.size())
    return unsupported(in, "arguments that do not match the function");
  TRY_VOID(copies(&arguments, function.params, site.arguments));
  TRY_VOID(copies(&results, function.returns, site.results));
  Code& code = emit(function.has_body ? run_call : run_host_call);
  code.extra = static_cast<std::uint32_t>(out_.calls.size());
  const bool is_printf = function.name == "vprintf" && function.params.size() == 2 &&
                         function.params[0].bytes() == 8 && function.params[1].bytes() == 8;
  if (!function.has_body && (!is_printf || site.arguments.size() != 2))
    return unsupported(in, "a function without a body");
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
  Code& code = emit(run_shuffle);
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
