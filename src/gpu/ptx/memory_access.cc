// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/memory_access.h"

#include <algorithm>
#include <optional>

namespace kansoku::gpu::ptx {
namespace {

using Kind = MemoryAccess::Kind;

std::optional<Space> space_of_suffix(Suffix suffix) {
  switch (suffix) {
    case Suffix::kGlobal:
      return Space::kGlobal;
    case Suffix::kShared:
    case Suffix::kSharedCta:
    case Suffix::kSharedCluster:
      return Space::kShared;
    case Suffix::kLocal:
      return Space::kLocal;
    case Suffix::kParam:
    case Suffix::kParamEntry:
    case Suffix::kParamFunc:
      return Space::kParam;
    case Suffix::kConst:
      return Space::kConst;
    default:
      return std::nullopt;
  }
}

/// Opcodes with one address and one type; the value that may be a vector is the other operand.
struct AccessRow {
  Op op;
  Kind kind;
  std::uint32_t address, value;
};
constexpr std::array kAccessRows{
    AccessRow{Op::kLd, Kind::kLoad, 1, 0},        AccessRow{Op::kLdu, Kind::kLoad, 1, 0},
    AccessRow{Op::kSt, Kind::kStore, 0, 1},       AccessRow{Op::kAtom, Kind::kAtomic, 1, 0},
    AccessRow{Op::kRed, Kind::kAtomic, 0, 1},     AccessRow{Op::kLdmatrix, Kind::kLoad, 1, 0},
    AccessRow{Op::kStmatrix, Kind::kStore, 0, 1},
};

bool is_strong(const Instruction& in) {
  return in.has(Suffix::kVolatile) || in.has(Suffix::kRelaxed) || in.has(Suffix::kAcquire) ||
         in.has(Suffix::kRelease) || in.has(Suffix::kAcqRel) || in.has(Suffix::kMmio);
}

std::uint32_t parts_of(const Function& function, const Instruction& in, std::uint32_t nth) {
  if (nth >= in.operand_count) return 1;
  const Operand& operand = function.operand(in, nth);
  return operand.kind == OperandKind::kVector ? operand.count : 1;
}

/// cp.async: bytes from global to shared memory.
MemoryAccesses of_copy(const Function& function, const Instruction& in) {
  if (!in.has(Suffix::kAsync) || in.has(Suffix::kBulk) || in.operand_count < 3) return {};
  const Operand& bytes = function.operand(in, 2);
  if (bytes.kind != OperandKind::kInteger) return {};
  MemoryAccess load, store;
  load.bytes = store.bytes = static_cast<std::uint32_t>(bytes.value);
  load.space = Space::kGlobal;
  load.operand = 1;
  store.kind = Kind::kStore;
  store.space = Space::kShared;
  return {load, store};
}

/// wmma: each lane has its share of the tile.
MemoryAccesses of_tile(const Instruction& in) {
  if (in.has(Suffix::kMma)) return {};
  const bool is_store = in.has(Suffix::kStore);
  constexpr std::uint32_t kDepth = 16, kWarp = 32;
  const std::uint32_t rows = in.has(Suffix::kM8n32k16) ? 8 : in.has(Suffix::kM32n8k16) ? 32 : 16;
  const std::uint32_t columns = 256 / rows;
  MemoryAccess access;
  access.kind = is_store ? Kind::kStore : Kind::kLoad;
  access.space = space_of(in);
  access.bytes = bytes_of(in.type());
  access.count = in.has(Suffix::kA)   ? rows * kDepth / kWarp
                 : in.has(Suffix::kB) ? columns * kDepth / kWarp
                                      : rows * columns / kWarp;
  access.operand = is_store ? 0 : 1;
  access.is_tile = true;
  return MemoryAccesses(access);
}

}  // namespace

Space space_of(const Instruction& in) {
  for (std::size_t i = 0; i < in.suffix_count; ++i) {
    if (const auto space = space_of_suffix(in.suffixes[i])) return *space;
  }
  return Space::kGeneric;
}

MemoryAccesses memory_access(const Function& function, const Instruction& in) {
  if (in.op == Op::kCp) return of_copy(function, in);
  if (in.op == Op::kWmma) return of_tile(in);
  const auto* const row = std::find_if(kAccessRows.begin(), kAccessRows.end(),
                                       [&](const AccessRow& each) { return each.op == in.op; });
  if (row == kAccessRows.end() || row->address >= in.operand_count) return {};
  MemoryAccess access;
  access.kind = row->kind;
  access.space = space_of(in);
  access.operand = row->address;
  access.is_strong = row->kind == Kind::kAtomic || is_strong(in);
  access.is_tile = in.op == Op::kLdmatrix || in.op == Op::kStmatrix;
  if (access.is_tile) {
    // A row of a matrix for each of eight lanes: 16 bytes.
    access.bytes = 16;
    if (access.space == Space::kGeneric) access.space = Space::kShared;
    return MemoryAccesses(access);
  }
  access.bytes = bytes_of(in.type());
  if (row->kind != Kind::kAtomic) access.count = parts_of(function, in, row->value);
  return MemoryAccesses(access);
}

}  // namespace kansoku::gpu::ptx
