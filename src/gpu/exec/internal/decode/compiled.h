// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/exec/internal/decode/code.h"
#include "gpu/exec/internal/ops/access.h"
#include "gpu/exec/internal/ops/matrix_site.h"
#include "gpu/ptx/op.h"

namespace kansoku::gpu::exec {

/// What an observer has to know about a code.
struct CodeInfo {
  enum class Access : std::uint8_t { kNone, kLoad, kStore, kAtomic, kMatrixLoad, kAsyncCopy };
  ptx::Op op{ptx::Op::kUnknown};
  bool is_first{false};   // of its instruction's codes: the one that is counted
  bool is_float{false};   // arithmetic on floating-point numbers
  bool is_strong{false};  // volatile, relaxed, acquire, release: ordered by itself
  Access access{Access::kNone};
  MemorySpace space{MemorySpace::kGlobal};
  std::uint8_t bytes{0}, count{1};  // of a value; values of a lane
};

/// A function ready to run.
struct CompiledFunction {
  std::string name;
  bool is_entry{false};
  std::vector<Code> code;
  std::vector<CodeInfo> info;      // by code
  std::vector<Handler> originals;  // by code, if an observer stands in front of them; else empty
  std::uint32_t prologue{0};       // codes at the begin that need to run once in a launch only
  std::uint32_t slot_count{0}, predicate_count{0};
  /// Slots that hold a constant; set up once when a frame is made.
  struct Constant {
    std::uint16_t slot;
    std::uint64_t value;
    bool is_wide;
  };
  std::vector<Constant> constants;
  std::uint32_t local_bytes{0};   // of one thread
  std::uint32_t shared_bytes{0};  // static
  std::uint32_t source{0};        // index into ptx::Module::functions
  /// What a call copies: bytes of the caller's local memory into the callee's, relative to their
  /// frames, and back.
  struct Copy {
    std::uint32_t caller_offset, callee_offset, bytes;
  };
  struct CallSite {
    std::uint32_t callee;  // index into Program::functions
    std::vector<Copy> arguments, results;
  };
  std::vector<CallSite> calls;
  /// A matrix product: mma, wmma.mma.
  struct Matrix {
    MatrixSlots slots{};
    MatrixProduct run{nullptr};
  };
  std::vector<Matrix> matrices;
  std::uint16_t frame_slot{0};  // 64-bit register: begin of this frame in local memory
};

/// The compiled functions of a module; code refers to them by index.
struct CompiledModule {
  std::vector<CompiledFunction> functions;
};

}  // namespace kansoku::gpu::exec
