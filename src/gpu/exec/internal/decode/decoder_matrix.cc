// SPDX-License-Identifier: Apache-2.0
// Matrix products, and loads and stores of their tiles.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <utility>

#include "gpu/exec/internal/decode/function_decoder.h"
#include "gpu/exec/internal/decode/matrix_table.h"
#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/ops/matrix.h"
#include "gpu/ptx/memory_access.h"

namespace kansoku::gpu::exec {

/// Registers of 32 bits in braces.
Result<void> FunctionDecoder::fragment(const Instruction& in, std::size_t nth, std::size_t count,
                                       std::uint16_t* slots) {
  const Operand& group = at(in, nth);
  if (group.kind != OperandKind::kVector || group.count != count)
    return unsupported(in, "another number of registers");
  for (std::uint32_t i = 0; i < group.count; ++i) {
    const Operand& part = function_.operands[group.index + i];
    const bool is_word = part.kind == OperandKind::kRegister &&
                         ptx::bits_of(function_.registers[part.index].type) == 32;
    if (!is_word && nth == 0) return unsupported(in, "expected registers of 32 bits");
    TRY(slots[i], source(in, part, Type::kB32, false));
  }
  return {};
}

/// mma.sync and wmma.mma: the words that all have, and the layouts, do not count: mma has one
/// layout, and fragments of wmma hold the matrix however it lay in memory.
Result<void> FunctionDecoder::tile_product(const Instruction& in) {
  std::string name(ptx::op_name(in.op));
  std::uint32_t layouts = 0, others = 0;
  for (std::size_t i = 0; i < in.suffix_count; ++i) {
    const Suffix suffix = in.suffixes[i];
    const bool is_layout = suffix == Suffix::kRow || suffix == Suffix::kCol;
    layouts += is_layout ? 1 : 0;
    const bool is_other =
        suffix == Suffix::kSync || suffix == Suffix::kAligned || suffix == Suffix::kMma;
    others += is_other ? 1 : 0;
    if (is_layout || is_other) continue;
    name += '.';
    name += ptx::suffix_name(suffix);
  }
  const MatrixForm* const form = find_matrix_form(isa_, name);
  const bool has_all = in.has(Suffix::kSync) && in.has(Suffix::kAligned) &&
                       others == (in.op == Op::kWmma ? 3 : 2) && layouts == 2;
  if (form == nullptr || !has_all || in.operand_count != 4)
    return unsupported(in, "a form that is not supported");
  CompiledFunction::Matrix site;
  site.run = form->run;
  TRY_VOID(fragment(in, 0, form->words[0], site.slots.d));
  TRY_VOID(fragment(in, 1, form->words[1], site.slots.a));
  TRY_VOID(fragment(in, 2, form->words[2], site.slots.b));
  TRY_VOID(fragment(in, 3, form->words[3], site.slots.c));
  Code& code = emit(run_mma);
  code.extra = static_cast<std::uint32_t>(out_.matrices.size());
  out_.matrices.push_back(site);
  return {};
}

Result<void> FunctionDecoder::matrix_product(const Instruction& in) {
  if (!in.has(Suffix::kRow) || !in.has(Suffix::kCol) || in.has(Suffix::kM8n8k4))
    return unsupported(in, "a form that is not supported");
  return tile_product(in);
}

Result<void> FunctionDecoder::matrix_transpose(const Instruction& in) {
  if (in.type() != Type::kB16 || !in.has(Suffix::kM8n8) || !in.has(Suffix::kTrans))
    return unsupported(in, "a form that is not supported");
  TRY(const auto a, source(in, at(in, 1), Type::kB32, false));
  TRY(const auto d, destination(in, at(in, 0), Type::kB32));
  Code& code = emit(run_movmatrix);
  code.d = d.slot;
  code.a = a;
  return finish(d);
}

std::uint16_t FunctionDecoder::emit_new(std::string_view name, bool wide, std::uint16_t a,
                                        std::uint16_t b, std::uint16_t c) {
  const std::uint16_t slot = new_slot(wide);
  Code& code = emit(find_form(isa_, name)->run);
  code.d = slot;
  code.a = a;
  code.b = b;
  code.c = c;
  return slot;
}

/// A tile that wmma loads or stores, in the order that Wmma of matrix_ops.h expects: element `nth`
/// of a lane stands in line `lane >> shift` and, within it, at `(lane & mask) * step` (lines are
/// rows of a, c and d and columns of b); and for c and d in one of several tiles of 8 by 8.
struct FunctionDecoder::Tile {
  std::uint32_t shift{0}, mask{0}, step{0};
  std::uint32_t elements{0}, words{0};
  std::uint32_t tiles_down{0};  // 0: of a or b
  Type type{Type::kF16};
  bool is_by_lines{false};  // lines lie in memory one after the other
  // Begin of the lane's part, and the distance of lines: in elements, a constant, or in bytes in a
  // register.
  Address begin;
  std::uint32_t distance{0};
  std::uint16_t distance_slot{kNoSlot};
};

Result<FunctionDecoder::Tile> FunctionDecoder::tile_of(const Instruction& in) {
  Tile tile;
  tile.type = in.type();
  constexpr std::uint32_t kDepth = 16;
  const bool is_wide = in.has(Suffix::kM8n32k16), is_tall = in.has(Suffix::kM32n8k16);
  if (!is_wide && !is_tall && !in.has(Suffix::kM16n16k16))
    return unsupported(in, "a form that is not supported");
  const std::uint32_t rows = is_wide ? 8 : is_tall ? 32 : 16, columns = 256 / rows;
  const bool is_a = in.has(Suffix::kA), is_b = in.has(Suffix::kB);
  const bool is_sum = in.has(Suffix::kStore) ? in.has(Suffix::kD) : in.has(Suffix::kC);
  const bool is_factor = tile.type == Type::kF16 || tile.type == Type::kBf16 ||
                         tile.type == Type::kS8 || tile.type == Type::kU8;
  const bool is_result =
      tile.type == Type::kF16 || tile.type == Type::kF32 || tile.type == Type::kS32;
  if (is_sum ? !is_result : !is_factor || is_a == is_b)
    return unsupported(in, "a form that is not supported");
  const std::uint32_t bytes = ptx::bytes_of(tile.type);
  if (is_sum) {
    tile.shift = 2;
    tile.step = 2;
    tile.elements = rows * columns / kLanes;
    tile.tiles_down = rows / 8;
  } else {
    tile.elements = tile.step = (is_a ? rows : columns) * kDepth / kLanes;
    tile.shift = static_cast<std::uint32_t>(std::countr_zero(kDepth / tile.elements));
  }
  tile.mask = (1U << tile.shift) - 1;
  tile.words = !is_sum && tile.type == Type::kF16 ? 8 : tile.elements * bytes / 4;
  tile.is_by_lines = in.has(Suffix::kRow) != is_b;
  // Without a stride the tile lies densely.
  const std::uint32_t along = is_sum             ? (tile.is_by_lines ? columns : rows)
                              : tile.is_by_lines ? kDepth
                                                 : (is_a ? rows : columns);
  tile.distance = along;
  return tile;
}

Result<void> FunctionDecoder::place_tile(const Instruction& in, Tile& tile) {
  const Space space = ptx::space_of(in);
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared)
    return unsupported(in, "a space that is not supported");
  const bool is_store = in.has(Suffix::kStore);
  TRY(tile.begin, address(in, at(in, is_store ? 0 : 1), space));
  constexpr std::int32_t kOffsetMax = 1 << 30;  // that of an element is added
  if (tile.begin.offset > kOffsetMax || tile.begin.offset < -kOffsetMax)
    return unsupported(in, "an offset this large");
  const std::uint64_t bytes = ptx::bytes_of(tile.type);
  std::uint16_t distance = 0;
  if (in.operand_count == 3 && at(in, 2).kind != OperandKind::kInteger) {
    TRY(const auto stride, source(in, at(in, 2), Type::kU32, true));
    distance = tile.distance_slot = emit_new("mul.lo.u64", true, stride, constant(bytes, true));
  } else {
    if (in.operand_count == 3) {
      if (at(in, 2).value < 0 || at(in, 2).value > 1 << 20)
        return unsupported(in, "an offset this large");
      tile.distance = static_cast<std::uint32_t>(at(in, 2).value);
    }
    distance = constant(tile.distance * bytes, true);
  }
  const std::uint16_t lane = new_slot(false);
  Code& special = emit(run_special);
  special.d = lane;
  special.extra = static_cast<std::uint32_t>(ptx::Special::kLaneid);
  const auto widened = [&](std::uint16_t slot) {
    return emit_new(".extend.u32.b64", true, slot, 0);
  };
  const std::uint16_t line = widened(emit_new("shr.u32", false, lane, constant(tile.shift, false)));
  const std::uint16_t within = widened(
      emit_new("mul.lo.u32", false, emit_new("and.b32", false, lane, constant(tile.mask, false)),
               constant(tile.step, false)));
  const std::uint16_t far = tile.is_by_lines ? line : within;
  const std::uint16_t near = tile.is_by_lines ? within : line;
  const std::uint16_t row = emit_new("mad.lo.u64", true, far, distance, tile.begin.slot);
  tile.begin.slot = emit_new("mad.lo.u64", true, near, constant(bytes, true), row);
  return {};
}

/// The register to which `offset` belongs.
Result<std::uint16_t> FunctionDecoder::place_in_tile(const Tile& tile, std::uint32_t nth,
                                                     std::int32_t& offset) {
  std::uint32_t line = 0, within = nth;
  if (tile.tiles_down != 0) {
    line = nth / 2 % tile.tiles_down * 8;
    within = nth % 2 + nth / 2 / tile.tiles_down * 8;
  }
  if (!tile.is_by_lines) std::swap(line, within);
  const auto bytes = static_cast<std::int32_t>(ptx::bytes_of(tile.type));
  offset = tile.begin.offset + static_cast<std::int32_t>(within) * bytes;
  if (tile.distance_slot == kNoSlot) {
    offset += static_cast<std::int32_t>(line * tile.distance) * bytes;
    return tile.begin.slot;
  }
  if (line == 0) return tile.begin.slot;
  return emit_new("mad.lo.u64", true, tile.distance_slot, constant(line, true), tile.begin.slot);
}

/// wmma.load and wmma.store: a lane's elements one by one, so that each is checked as any access.
Result<void> FunctionDecoder::tile_access(const Instruction& in) {
  TRY(Tile tile, tile_of(in));
  const bool is_store = in.has(Suffix::kStore);
  std::array<std::uint16_t, kFragmentWordsMax> words{};
  TRY_VOID(fragment(in, is_store ? 1 : 0, tile.words, words.data()));
  TRY_VOID(place_tile(in, tile));
  const std::uint32_t bits = ptx::bits_of(tile.type), per_word = 32 / bits;
  const std::string_view space = ptx::space_name(tile.begin.space);
  const Form* const form =
      find_form(isa_, fmt::format(".{}.{}.b{}", is_store ? "st" : "ld",
                                  space.empty() ? "generic" : space.substr(1), bits));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  for (std::uint32_t word = 0; word < tile.words; ++word) {
    if (word * per_word >= tile.elements) {  // holds no element
      TRY_VOID(emit_form("mov.b32", words[word], constant(0, false)));
      continue;
    }
    std::array<std::uint16_t, 4> parts{words[word]};
    for (std::uint32_t i = 0; per_word > 1 && i < per_word; ++i)
      parts[i] = new_slot(false);
    const auto whole = [&](bool is_pack) -> Result<void> {
      const Form* const group =
          find_form(isa_, fmt::format(".{}.b32.{}", is_pack ? "pack" : "unpack", per_word));
      if (group == nullptr) return unsupported(in, "a form that is not supported");
      Code& code = emit(group->run);
      code.d = is_pack ? words[word] : parts[0];
      code.a = is_pack ? parts[0] : words[word];
      code.b = parts[1];
      code.c = parts[2];
      code.offset = parts[3];
      return {};
    };
    if (is_store && per_word > 1) TRY_VOID(whole(false));
    for (std::uint32_t i = 0; i < per_word; ++i) {
      std::int32_t offset = 0;
      TRY(const auto slot, place_in_tile(tile, word * per_word + i, offset));
      Code& code = emit(form->run);
      note_access(in, tile.begin.space);
      code.d = parts[i];
      code.a = slot;
      code.offset = offset;
      code.site = out_.site_count++;
    }
    if (!is_store && per_word > 1) TRY_VOID(whole(true));
  }
  return {};
}

}  // namespace kansoku::gpu::exec
