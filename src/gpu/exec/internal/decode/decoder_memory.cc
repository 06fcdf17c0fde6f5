// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>

#include "common/check.h"
#include "gpu/exec/internal/decode/function_decoder.h"
#include "gpu/exec/internal/ops/atomics.h"
#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/ops/matrix.h"
#include "gpu/exec/internal/warp.h"
#include "gpu/ptx/memory_access.h"

namespace kansoku::gpu::exec {
/// A register or symbol in brackets, as a 64-bit slot and an offset.
Result<FunctionDecoder::Address> FunctionDecoder::address(const Instruction& in,
                                                          const Operand& operand, Space space) {
  Address out;
  out.space = space;
  std::int64_t offset = operand.value;
  switch (operand.base) {
    case OperandKind::kRegister: {
      Operand base = operand;
      base.kind = OperandKind::kRegister;
      TRY(out.slot, source(in, base, Type::kU64, true));
      break;
    }
    case OperandKind::kNone:
      out.slot = constant(static_cast<std::uint64_t>(offset), true);
      offset = 0;
      break;
    default: {
      Operand base = operand;
      base.kind = operand.base;
      base.value = 0;
      // Variables of this frame: its begin, and the rest as the offset.
      const bool is_shared = base.kind == OperandKind::kLocalVariable &&
                             function_.variables[base.index].space == Space::kShared;
      const bool is_global = base.kind == OperandKind::kModuleVariable ||
                             (base.kind == OperandKind::kParameter && function_.is_entry);
      if (is_shared || is_global) {
        TRY(out.slot, symbol_address(in, base));
      } else {
        out.slot = out_.frame_slot;
        offset += base.kind == OperandKind::kParameter ? param_offsets_[base.index]
                  : base.kind == OperandKind::kReturn  ? return_offsets_[base.index]
                                                       : variable_offsets_[base.index];
      }
      if (base.kind == OperandKind::kParameter && function_.is_entry) {
        out.space = Space::kParam;
      } else if (space == Space::kParam) {
        out.space = Space::kLocal;
      }
    }
  }
  if (operand.base == OperandKind::kRegister && space == Space::kParam && !function_.is_entry)
    out.space = Space::kLocal;
  if (offset < std::numeric_limits<std::int32_t>::min() ||
      offset > std::numeric_limits<std::int32_t>::max())
    return unsupported(in, "an offset this large");
  out.offset = static_cast<std::int32_t>(offset);
  return out;
}

static std::string memory_form(std::string_view op, Space space, std::uint32_t count, Type type) {
  const std::string_view name = ptx::space_name(space);
  return fmt::format(".{}.{}{}.b{}", op, name.empty() ? "generic" : name.substr(1),
                     count == 1 ? "" : fmt::format(".v{}", count), ptx::bits_of(type));
}

void FunctionDecoder::note_access(const Instruction& in, Space space) {
  const ptx::MemoryAccesses accesses = ptx::memory_access(function_, in);
  CHECK(!accesses.empty());
  const ptx::MemoryAccess& access = *accesses.begin();
  CodeInfo& info = out_.info.back();
  using Kind = ptx::MemoryAccess::Kind;
  info.access = accesses.size() == 2          ? CodeInfo::Access::kAsyncCopy
                : in.op == Op::kLdmatrix      ? CodeInfo::Access::kMatrixLoad
                : access.kind == Kind::kLoad  ? CodeInfo::Access::kLoad
                : access.kind == Kind::kStore ? CodeInfo::Access::kStore
                                              : CodeInfo::Access::kAtomic;
  info.space = static_cast<MemorySpace>(space);
  info.bytes = static_cast<std::uint8_t>(access.bytes);
  // The elements of a tile are accessed one by one.
  info.count = static_cast<std::uint8_t>(access.is_tile ? 1 : access.count);
  info.is_strong = access.is_strong;
}

Result<void> FunctionDecoder::load(const Instruction& in) {
  const Type type = in.type();
  const Operand& to = at(in, 0);
  const bool is_vector = to.kind == OperandKind::kVector;
  const std::uint32_t count = is_vector ? to.count : 1;
  if (count != 1 && count != 2 && count != 4) return unsupported(in, "expected 1, 2 or 4 values");
  if (ptx::bits_of(type) > 64 || in.operand_count > 2)
    return unsupported(in, "a form that is not supported");
  TRY(const auto from, address(in, at(in, 1), ptx::space_of(in)));
  const Form* const form = find_form(isa_, memory_form("ld", from.space, count, type));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  std::array<Destination, 4> parts;
  for (std::uint32_t i = 0; i < count; ++i) {
    TRY(parts[i], destination(in, is_vector ? function_.operands[to.index + i] : to, type));
  }
  Code& code = emit(form->run);
  note_access(in, from.space);
  code.a = from.slot;
  code.offset = from.offset;
  code.site = out_.site_count++;
  code.d = parts[0].slot;
  code.b = parts[1].slot;
  code.c = parts[2].slot;
  code.extra = parts[3].slot;
  for (std::uint32_t i = 0; i < count; ++i)
    TRY_VOID(finish(parts[i]));
  return {};
}

Result<void> FunctionDecoder::store(const Instruction& in) {
  const Type type = in.type();
  const Operand& value = at(in, 1);
  const bool is_vector = value.kind == OperandKind::kVector;
  const std::uint32_t count = is_vector ? value.count : 1;
  if (count != 1 && count != 2 && count != 4) return unsupported(in, "expected 1, 2 or 4 values");
  if (ptx::bits_of(type) > 64 || in.operand_count > 2)
    return unsupported(in, "a form that is not supported");
  TRY(const auto to, address(in, at(in, 0), ptx::space_of(in)));
  const Form* const form = find_form(isa_, memory_form("st", to.space, count, type));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  std::array<std::uint16_t, 4> parts{};
  for (std::uint32_t i = 0; i < count; ++i) {
    TRY(parts[i],
        source(in, is_vector ? function_.operands[value.index + i] : value, type, is_wide(type)));
  }
  Code& code = emit(form->run);
  note_access(in, to.space);
  code.a = to.slot;
  code.offset = to.offset;
  code.site = out_.site_count++;
  code.d = parts[0];
  code.b = parts[1];
  code.c = parts[2];
  code.extra = parts[3];
  return {};
}

/// cvta: between an address of a space and a generic one. Global and constant memory have the same
/// addresses in both; shared and local memory lie in windows.
Result<void> FunctionDecoder::address_conversion(const Instruction& in) {
  const Space space = ptx::space_of(in);
  const bool is_to = in.has(Suffix::kTo);
  if (in.type() != Type::kU64 || space == Space::kGeneric)
    return unsupported(in, "a form that is not supported");
  TRY(const auto a, source(in, at(in, 1), in.type(), true));
  TRY(const auto d, destination(in, at(in, 0), in.type()));
  if (space == Space::kShared || space == Space::kLocal) {
    const std::uint64_t window = space == Space::kShared ? kSharedWindowBegin : kLocalWindowBegin;
    Code& code = emit(find_form(isa_, is_to ? "sub.u64" : "add.u64")->run);
    code.d = d.slot;
    code.a = a;
    code.b = constant(window, true);
    return finish(d);
  }
  if (space == Space::kParam) return unsupported(in, "generic addresses of parameters");
  Code& code = emit(find_form(isa_, "mov.b64")->run);
  code.d = d.slot;
  code.a = a;
  return finish(d);
}

Result<void> FunctionDecoder::space_test(const Instruction& in) {
  TRY(const auto a, source(in, at(in, 1), Type::kU64, true));
  TRY(const auto d, predicate(in, at(in, 0)));
  const Space space = ptx::space_of(in);
  const auto below = static_cast<std::uint16_t>(out_.predicate_count++);
  // address - begin < size, for a window; global memory is what lies in neither.
  const auto test = [&](std::uint64_t begin, std::uint64_t bytes, std::uint16_t to) {
    const std::uint16_t relative = new_slot(true);
    Code& sub = emit(find_form(isa_, "sub.u64")->run);
    sub.d = relative;
    sub.a = a;
    sub.b = constant(begin, true);
    Code& less = emit(find_form(isa_, "setp.lt.u64")->run);
    less.d = to;
    less.a = relative;
    less.b = constant(bytes, true);
  };
  if (space == Space::kShared) {
    test(kSharedWindowBegin, kWindowBytes, d);
  } else if (space == Space::kLocal) {
    test(kLocalWindowBegin, kWindowBytes, d);
  } else if (space == Space::kGlobal) {
    test(kSharedWindowBegin, 2 * kWindowBytes, below);
    Code& negate = emit(run_predicate_logic);
    negate.d = d;
    negate.a = negate.b = below;
    negate.extra = 3 | 16;
  } else {
    return unsupported(in, "a space that is not supported");
  }
  return {};
}

Result<void> FunctionDecoder::atomic(const Instruction& in) {
  const bool is_red = in.op == Op::kRed;
  const Type type = in.type();
  AtomicForm form;
  form.space = ptx::space_of(in);
  form.type = type;
  for (std::size_t i = 0; i < in.suffix_count; ++i) {
    if (atomic_operation(in.suffixes[i])) form.operation = in.suffixes[i];
  }
  form.has_result = !is_red && at(in, 0).kind != OperandKind::kSink;
  const auto index = atomic_index(form);
  if (!index) return unsupported(in, "a form that is not supported");
  const std::size_t address_at = is_red ? 0 : 1;
  const std::size_t wanted = address_at + (form.operation == Suffix::kCas ? 3 : 2);
  if (in.operand_count != wanted) return unsupported(in, "a form that is not supported");
  TRY(const auto to, address(in, at(in, address_at), form.space));
  TRY(const auto value, source(in, at(in, address_at + 1), type, is_wide(type)));
  std::uint16_t second = value;  // read with any operation
  if (form.operation == Suffix::kCas) {
    TRY(second, source(in, at(in, address_at + 2), type, is_wide(type)));
  }
  Destination d;
  if (form.has_result) {
    TRY(d, destination(in, at(in, 0), type));
  }
  Code& code = emit(run_atomic);
  note_access(in, form.space);
  code.d = d.slot;
  code.a = to.slot;
  code.offset = to.offset;
  code.b = value;
  code.c = second;
  code.site = out_.site_count++;
  code.extra = *index;
  return form.has_result ? finish(d) : Result<void>{};
}

Result<void> FunctionDecoder::matrix_load(const Instruction& in) {
  const std::uint32_t count = in.has(Suffix::kX4) ? 4 : in.has(Suffix::kX2) ? 2 : 1;
  const Space space = ptx::space_of(in);
  if (in.type() != Type::kB16 || !in.has(Suffix::kM8n8) ||
      (space != Space::kShared && space != Space::kGeneric))
    return unsupported(in, "a form that is not supported");
  TRY(const auto from, address(in, at(in, 1), space));
  std::array<std::uint16_t, 4> slots{};
  TRY_VOID(fragment(in, 0, count, slots.data()));
  Code& code = emit(run_ldmatrix);
  note_access(in, Space::kShared);
  code.a = from.slot;
  code.offset = from.offset;
  code.d = slots[0];
  code.b = slots[1];
  code.c = slots[2];
  code.site = slots[3];
  code.extra = count | (in.has(Suffix::kTrans) ? 8 : 0) | (space == Space::kGeneric ? 16 : 0);
  return {};
}

/// Copies are done at once, so groups need not be waited for.
Result<void> FunctionDecoder::async_copy(const Instruction& in) {
  if (in.has(Suffix::kCommitGroup) || in.has(Suffix::kWaitGroup) || in.has(Suffix::kWaitAll)) {
    emit(run_nothing);
    return {};
  }
  if (!in.has(Suffix::kAsync) || in.has(Suffix::kBulk) || in.operand_count < 3)
    return unsupported(in, "a form that is not supported");
  const Operand& bytes = at(in, 2);
  if (bytes.kind != OperandKind::kInteger ||
      (bytes.value != 4 && bytes.value != 8 && bytes.value != 16))
    return unsupported(in, "expected 4, 8 or 16 bytes");
  if (in.has(Suffix::kCg) && bytes.value != 16) return unsupported(in, "expected 16 bytes");
  // The last operand then is a policy for the cache, which this device does not have.
  const std::size_t operands = in.operand_count - (in.has(Suffix::kL2Hint) ? 1U : 0U);
  if (operands != 3 && operands != 4) return unsupported(in, "a form that is not supported");
  TRY(const auto to, address(in, at(in, 0), Space::kShared));
  TRY(const auto from, address(in, at(in, 1), Space::kGlobal));
  std::uint16_t taken = kNoSlot;
  if (operands == 4) {
    TRY(taken, source(in, at(in, 3), Type::kU32, false));
  }
  Code& code = emit(run_async_copy);
  note_access(in, Space::kShared);
  code.a = to.slot;
  code.b = from.slot;
  code.c = taken;
  code.offset = to.offset;
  code.site = static_cast<std::uint32_t>(from.offset);
  code.extra = static_cast<std::uint32_t>(bytes.value);
  return {};
}

}  // namespace kansoku::gpu::exec
