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

enum class CostClass : std::uint8_t;

/// Facts about a code for an observer.
struct CodeInfo {
  enum class Access : std::uint8_t { kNone, kLoad, kStore, kAtomic, kMatrixLoad, kAsyncCopy };
  ptx::Op op{ptx::Op::kUnknown};
  bool is_first{false};   // of its instruction's codes: the one that is counted
  bool is_float{false};   // arithmetic on floating-point numbers
  bool is_strong{false};  // volatile, relaxed, acquire, release: ordered by itself
  CostClass cost{};       // of an instruction that is no access
  Access access{Access::kNone};
  MemorySpace space{MemorySpace::kGlobal};
  std::uint8_t bytes{0}, count{1};  // of a value; values of a lane
};

/// A code that a counter stands in front of, and the instructions counted when it has run: itself,
/// and those that run behind it without a stop.
struct CountedCode {
  Handler original{nullptr};
  std::uint32_t instructions{0}, issue16{0}, latency_cycles{0};
};

/// A function ready to run.
struct CompiledFunction {
  std::string name;
  bool is_entry{false};
  std::vector<Code> code;
  std::vector<CodeInfo> info;        // by code
  std::vector<Handler> originals;    // by code, if an observer stands in front of them; else empty
  std::vector<CountedCode> counted;  // by code, if counters stand in front of some of them
  std::uint32_t prologue{0};         // codes at the begin that need to run once in a launch only
  std::uint32_t slot_count{0}, predicate_count{0};
  /// Slots that hold a constant; set up once when a frame is made.
  struct Constant {
    std::uint16_t slot;
    std::uint64_t value;
    bool is_wide;
  };
  std::vector<Constant> constants;
  std::uint32_t site_count{0};    // of memory instructions
  std::uint32_t local_bytes{0};   // of one thread
  std::uint32_t shared_bytes{0};  // static
  std::uint32_t source{0};        // index into ptx::Module::functions
  /// A parameter or a result within a frame, in local memory.
  struct Place {
    std::uint32_t offset{0}, bytes{0};
  };
  std::vector<Place> params, returns;  // of a device function
  /// A call copies bytes of the caller's frame into the callee's, and back.
  struct CallSite {
    std::uint32_t callee{kNoCallee};        // index into CompiledModule::functions
    std::vector<Place> arguments, results;  // of the caller; a result without bytes is left out
    [[nodiscard]] bool fits(const CompiledFunction& callee_function) const;
  };
  static constexpr std::uint32_t kNoCallee = 0xffffffff;  // a register says whom to call
  std::vector<CallSite> calls;
  /// A matrix product: mma, wmma.mma.
  struct Matrix {
    MatrixSlots slots{};
    MatrixProduct run{nullptr};
  };
  std::vector<Matrix> matrices;
  std::uint16_t frame_slot{0};  // 64-bit register: begin of this frame in local memory
};

/// Addresses of functions: numbers that nothing is ever mapped at, one a function.
inline constexpr std::uint64_t kFunctionsBegin = std::uint64_t{0x7d00} << 32, kFunctionBytes = 16;
[[nodiscard]] inline std::uint64_t function_address(std::uint32_t index) {
  return kFunctionsBegin + kFunctionBytes * index;
}

/// The compiled functions of a module; code refers to them by index.
struct CompiledModule {
  std::vector<CompiledFunction> functions;
};

}  // namespace kansoku::gpu::exec
