// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "common/check.h"
#include "gpu/exec/internal/decode/decoder.h"
#include "gpu/exec/internal/observe/counter.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::uint64_t kParamBytesMax = 32'764;    // CUDA's limit since 12.1
constexpr std::uint64_t kSharedBytesMax = 1 << 20;  // a launch allows less
constexpr std::uint64_t kLocalBytesMax = 16 << 20;

std::uint64_t total_bytes(const std::vector<ptx::Variable>& variables) {
  std::uint64_t total = 0;
  for (const ptx::Variable& variable : variables)
    total += variable.bytes() + variable.alignment();
  return total;
}

Error too_large(std::string_view what, const ptx::Function& function) {
  return Error{kansoku::Code::kLimit,
               fmt::format("load module: {} of {} are too large", what, function.name)};
}

/// Sizes are added in 32 bits further on.
Result<void> check_sizes(const ptx::Module& module) {
  std::uint64_t shared = 0;
  for (const ptx::Variable& variable : module.variables)
    shared += variable.space == ptx::Space::kShared ? variable.bytes() + variable.alignment() : 0;
  for (const ptx::Function& function : module.functions) {
    if (total_bytes(function.params) > kParamBytesMax ||
        total_bytes(function.returns) > kParamBytesMax)
      return too_large("parameters", function);
    std::uint64_t local = 0;
    for (const ptx::Variable& variable : function.variables) {
      const std::uint64_t bytes = variable.bytes() + variable.alignment();
      switch (variable.space) {
        case ptx::Space::kShared:
          shared += bytes;
          break;
        case ptx::Space::kLocal:
        case ptx::Space::kParam:
          local += bytes;
          break;
        default:
          return Error{
              kansoku::Code::kUnsupported,
              fmt::format("load module: variable {} within {}", variable.name, function.name)};
      }
      if (local > kLocalBytesMax) return too_large("local variables", function);
      if (shared > kSharedBytesMax) return too_large("shared variables", function);
    }
  }
  return {};
}

}  // namespace

struct Program::State {
  ptx::Module module;
  Memory* memory{nullptr};
  ModuleLayout layout;
  CompiledModule compiled;
  Isa isa{Isa::kV2};
  mutable std::once_flag in_order_once;
  mutable CompiledModule in_order;  // by in_order_once
  struct Counted {
    std::optional<CycleCosts> costs;
    std::shared_ptr<const CompiledModule> module;
  };
  mutable std::mutex counted_mutex;
  mutable std::array<Counted, 2> counted;  // with and without costs; guarded by counted_mutex
  std::vector<KernelInfo> kernels;
  std::vector<std::size_t> kernel_functions;
  std::vector<std::uint64_t> allocations;
  std::vector<std::string> refusals;  // by function; "": it can run
  std::vector<bool> is_decoded;       // by function

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (const std::uint64_t address : allocations)
      static_cast<void>(memory->free(address));
  }

  Result<void> place_variables();
  Result<void> initialise();
  void decode(Isa isa);
  void decode_one(std::uint32_t index);
  void refuse_callers();
  void add_kernel(std::uint32_t index);
  void find_clocks(std::uint32_t index, KernelInfo& info) const;
};

Program::Program(std::unique_ptr<State> state) : state_(std::move(state)) {}
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;
Program::~Program() = default;

Result<void> Program::State::place_variables() {
  std::uint32_t shared = 0;
  std::uint32_t dynamic_align = 16;
  for (const ptx::Variable& variable : module.variables) {
    std::uint64_t place = 0;
    if (variable.space == ptx::Space::kShared) {
      const std::uint32_t align = variable.alignment();
      if (variable.is_unsized) {
        dynamic_align = std::max(dynamic_align, align);
      } else {
        shared = (shared + align - 1) / align * align;
        place = shared;
        shared += static_cast<std::uint32_t>(variable.bytes());
      }
    } else if (variable.space == ptx::Space::kGlobal || variable.space == ptx::Space::kConst) {
      if (variable.linkage == ptx::Linkage::kExtern) {
        return Error{
            kansoku::Code::kUnsupported,
            fmt::format("load module: variable {} is declared but not defined", variable.name)};
      }
      TRY(place, memory->allocate(std::max<std::uint64_t>(variable.bytes(), 1)));
      allocations.push_back(place);
    } else {
      return Error{kansoku::Code::kUnsupported,
                   fmt::format("load module: variable {} outside of functions", variable.name)};
    }
    layout.variables.push_back(place);
  }
  // Shared variables of device functions may be in use together with any kernel's; kernels' never
  // with each other's.
  const auto end_of = [](const ptx::Function& function, std::uint32_t begin) {
    for (const ptx::Variable& variable : function.variables) {
      if (variable.space != ptx::Space::kShared || variable.is_unsized) continue;
      const std::uint32_t align = variable.alignment();
      begin = (begin + align - 1) / align * align + static_cast<std::uint32_t>(variable.bytes());
    }
    return begin;
  };
  layout.function_shared.resize(module.functions.size());
  for (std::size_t i = 0; i < module.functions.size(); ++i) {
    if (module.functions[i].is_entry) continue;
    layout.function_shared[i] = shared;
    shared = end_of(module.functions[i], shared);
  }
  std::uint32_t end = shared;
  for (std::size_t i = 0; i < module.functions.size(); ++i) {
    if (!module.functions[i].is_entry) continue;
    layout.function_shared[i] = shared;
    end = std::max(end, end_of(module.functions[i], shared));
  }
  // Arrays whose size the launch gives begin behind everything else.
  layout.dynamic_shared_offset = (end + dynamic_align - 1) / dynamic_align * dynamic_align;
  for (std::size_t i = 0; i < module.variables.size(); ++i) {
    const ptx::Variable& variable = module.variables[i];
    if (variable.space == ptx::Space::kShared && variable.is_unsized)
      layout.variables[i] = layout.dynamic_shared_offset;
  }
  return {};
}

Result<void> Program::State::initialise() {
  for (std::size_t i = 0; i < module.variables.size(); ++i) {
    const ptx::Variable& variable = module.variables[i];
    if (!variable.has_initialiser || variable.space == ptx::Space::kShared) continue;
    auto* const place =
        reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(layout.variables[i]));
    std::copy(variable.initial.begin(), variable.initial.end(), place);
    for (const ptx::Relocation& relocation : variable.relocations) {
      const ptx::Function* const function = module.find_function(relocation.symbol);
      if (function != nullptr && function->has_body && !function->is_entry) {
        const auto index = static_cast<std::uint32_t>(function - module.functions.data());
        const std::uint64_t address =
            function_address(index) + static_cast<std::uint64_t>(relocation.addend);
        std::memcpy(place + relocation.offset, &address, sizeof address);
        continue;
      }
      const ptx::Variable* const target = module.find_variable(relocation.symbol);
      if (target == nullptr || target->space == ptx::Space::kShared) {
        return Error{kansoku::Code::kUnsupported,
                     fmt::format("load module: the initialiser of {} holds the address of {}",
                                 variable.name, relocation.symbol)};
      }
      const auto index = static_cast<std::size_t>(target - module.variables.data());
      const std::uint64_t address =
          layout.variables[index] + static_cast<std::uint64_t>(relocation.addend);
      std::memcpy(place + relocation.offset, &address, sizeof address);
    }
  }
  return {};
}

/// A function that cannot be decoded has no code: it is refused, and nothing else is.
void Program::State::decode_one(std::uint32_t index) {
  CompiledFunction& out = compiled.functions.emplace_back();
  std::string& refusal = refusals.emplace_back();
  is_decoded.push_back(false);
  if (!module.functions[index].has_body) return;
  auto decoded = decode_function(module, index, layout, isa);
  if (decoded) {
    out = std::move(*decoded);
    is_decoded.back() = true;
    return;
  }
  refusal = decoded.error().what;
}

/// Until nothing changes: whoever calls a refused function cannot run either.
void Program::State::refuse_callers() {
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (std::size_t i = 0; i < compiled.functions.size(); ++i) {
      if (!refusals[i].empty()) continue;
      for (const CompiledFunction::CallSite& call : compiled.functions[i].calls) {
        if (call.callee == CompiledFunction::kNoCallee || refusals[call.callee].empty()) continue;
        refusals[i] =
            fmt::format("calls {}: {}", module.functions[call.callee].name, refusals[call.callee]);
        has_changed = true;
        break;
      }
    }
  }
}

/// Looks for the clocks in the kernel and in all that it may call; a call through a register may
/// lead anywhere.
void Program::State::find_clocks(std::uint32_t index, KernelInfo& info) const {
  std::vector<bool> is_seen(module.functions.size());
  std::vector<std::uint32_t> left{index};
  const auto visit = [&](std::uint32_t function) {
    if (!is_seen[function]) left.push_back(function);
    is_seen[function] = true;
  };
  is_seen[index] = true;
  while (!left.empty()) {
    const std::uint32_t at = left.back();
    left.pop_back();
    for (const ptx::Operand& operand : module.functions[at].operands) {
      if (operand.kind != ptx::OperandKind::kSpecial) continue;
      const std::string_view name = ptx::special_name(static_cast<ptx::Special>(operand.index));
      info.reads_clock = info.reads_clock || name.starts_with("%clock");
      info.reads_timer = info.reads_timer || name.starts_with("%globaltimer");
    }
    for (const CompiledFunction::CallSite& call : compiled.functions[at].calls) {
      if (call.callee != CompiledFunction::kNoCallee) {
        visit(call.callee);
        continue;
      }
      for (std::uint32_t i = 0; i < module.functions.size(); ++i)
        visit(i);
    }
  }
}

void Program::State::add_kernel(std::uint32_t index) {
  const ptx::Function& function = module.functions[index];
  KernelInfo info;
  info.name = function.name;
  const ParamLayout params = lay_out_params(function.params);
  info.param_offsets = params.offsets;
  info.params_total_bytes = params.bytes;
  for (const ptx::Variable& param : function.params)
    info.param_bytes.push_back(static_cast<std::uint32_t>(param.bytes()));
  info.shared_bytes = compiled.functions[index].shared_bytes;
  info.local_bytes = compiled.functions[index].local_bytes;
  info.registers = static_cast<std::uint32_t>(function.registers.size());
  info.bounds = function.bounds;
  find_clocks(index, info);
  if (!refusals[index].empty())
    info.refusal = fmt::format("kernel {}: {}", function.name, refusals[index]);
  kernels.push_back(std::move(info));
  kernel_functions.push_back(index);
}

void Program::State::decode(Isa wanted) {
  isa = wanted;
  for (std::uint32_t i = 0; i < module.functions.size(); ++i)
    decode_one(i);
  refuse_callers();
  for (std::uint32_t i = 0; i < module.functions.size(); ++i) {
    if (module.functions[i].is_entry && module.functions[i].has_body) add_kernel(i);
  }
}

Result<Program> Program::load(ptx::Module module, Memory& memory, Isa isa) {
  for (const ptx::RawDirective& raw : module.directives) {
    if (!raw.is_known) {
      return Error{kansoku::Code::kUnsupported,
                   fmt::format("ptx line {}: `{:.60}`: a directive that is not supported", raw.line,
                               raw.text)};
    }
  }
  TRY_VOID(check_sizes(module));
  auto state = std::make_unique<State>();
  state->module = std::move(module);
  state->memory = &memory;
  TRY_VOID(state->place_variables());
  TRY_VOID(state->initialise());
  state->decode(isa);
  return Program(std::move(state));
}

const std::vector<KernelInfo>& Program::kernels() const {
  return state_->kernels;
}
const ptx::Module& Program::module() const {
  return state_->module;
}
const CompiledModule& Program::compiled() const {
  return state_->compiled;
}
const CompiledModule& Program::compiled_in_order() const {
  const State& state = *state_;
  std::call_once(state.in_order_once, [&state] {
    for (std::uint32_t i = 0; i < state.module.functions.size(); ++i) {
      CompiledFunction& function = state.in_order.functions.emplace_back();
      if (!state.is_decoded[i]) continue;
      auto decoded = decode_function(state.module, i, state.layout, state.isa, false);
      CHECK(decoded.has_value());  // it was decoded before
      CHECK(decoded->site_count == state.compiled.functions[i].site_count);
      function = std::move(*decoded);
    }
  });
  return state.in_order;
}
std::shared_ptr<const CompiledModule> Program::compiled_counted(const CycleCosts* costs) const {
  const CompiledModule& module = compiled_in_order();
  const std::scoped_lock lock(state_->counted_mutex);
  State::Counted& kept = state_->counted[costs == nullptr ? 0 : 1];
  if (kept.module != nullptr && (costs == nullptr || kept.costs == *costs)) return kept.module;
  std::shared_ptr<const CompiledModule> made = counted_copy(module, costs, state_->isa);
  if (kept.module != nullptr) return made;
  kept.module = made;
  if (costs != nullptr) kept.costs = *costs;
  return made;
}
std::size_t Program::function_of(std::size_t kernel) const {
  return state_->kernel_functions[kernel];
}
std::uint32_t Program::dynamic_shared_offset() const {
  return state_->layout.dynamic_shared_offset;
}

Result<std::size_t> Program::find_kernel(std::string_view name) const {
  const auto& all = state_->kernels;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const KernelInfo& kernel) { return kernel.name == name; });
  if (found == all.end())
    return Error{kansoku::Code::kNotFound, fmt::format("no kernel {} in this module", name)};
  if (!found->refusal.empty()) return Error{kansoku::Code::kUnsupported, found->refusal};
  return static_cast<std::size_t>(found - all.begin());
}

Result<Memory::Range> Program::find_variable(std::string_view name) const {
  const ptx::Variable* const variable = state_->module.find_variable(name);
  if (variable == nullptr || variable->space == ptx::Space::kShared)
    return Error{kansoku::Code::kNotFound, fmt::format("no variable {} in this module", name)};
  const auto index = static_cast<std::size_t>(variable - state_->module.variables.data());
  const std::uint64_t address = state_->layout.variables[index];
  return Memory::Range{address, address + variable->bytes()};
}

}  // namespace kansoku::gpu::exec
