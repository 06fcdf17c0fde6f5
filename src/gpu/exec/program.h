// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/isa.h"
#include "common/result.h"
#include "gpu/exec/memory.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

struct CompiledModule;
struct CycleCosts;

/// Facts about a kernel that its launch needs.
struct KernelInfo {
  std::string name;
  std::vector<std::uint32_t> param_offsets;  // bytes
  std::vector<std::uint32_t> param_bytes;
  std::uint32_t params_total_bytes{0};
  std::uint32_t shared_bytes{0};  // static
  std::uint32_t local_bytes{0};   // of a thread, calls not counted
  std::uint32_t registers{0};     // of the PTX text
  ptx::LaunchBounds bounds;
  bool reads_clock{false}, reads_timer{false};  // %clock..., %globaltimer...; or a function that it
                                                // calls may
  /// Why it cannot run, with its PTX line; "" if it can. Other kernels of the module are not
  /// concerned.
  std::string refusal;
};

/// A module that is ready to run on a software device: its variables lie in the device's memory,
/// its functions are decoded. Freed with the object; the memory must outlive it.
class Program {
 public:
  /// A kernel with an instruction that the executor does not know, or that calls such a function,
  /// is refused alone (KernelInfo::refusal). kUnsupported for directives and variables that it does
  /// not know; kLimit if the variables do not fit; kCorrupt for initialisers that name a symbol
  /// that is not there. The module must be sound (ptx::verify). `isa`: of the lane loops. All give
  /// the same bits; only sin and cos of angles beyond 2^17 are the mathematical library's, which
  /// may differ from machine to machine.
  [[nodiscard]] static Result<Program> load(ptx::Module module, Memory& memory,
                                            Isa isa = best_isa());
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;
  ~Program();

  [[nodiscard]] const std::vector<KernelInfo>& kernels() const;
  /// Index into kernels(); kNotFound, or kUnsupported with the reason for one that cannot run.
  [[nodiscard]] Result<std::size_t> find_kernel(std::string_view name) const;
  /// Address and size of a variable in global or constant memory; kNotFound.
  [[nodiscard]] Result<Memory::Range> find_variable(std::string_view name) const;
  [[nodiscard]] const ptx::Module& module() const;
  /// For the executor.
  [[nodiscard]] const CompiledModule& compiled() const;
  /// The same with every instruction where the text has it, for observers; made when first asked
  /// for. Any thread.
  [[nodiscard]] const CompiledModule& compiled_in_order() const;
  /// The same, with counters (null: of instructions alone); kept for the costs that were first
  /// asked for. Any thread.
  [[nodiscard]] std::shared_ptr<const CompiledModule> compiled_counted(
      const CycleCosts* costs) const;
  [[nodiscard]] std::size_t function_of(std::size_t kernel) const;
  [[nodiscard]] std::uint32_t dynamic_shared_offset() const;

 private:
  struct State;
  explicit Program(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kansoku::gpu::exec
