// SPDX-License-Identifier: Apache-2.0
// Any PTX text: what parses and is sound is refused by the executor with a reason, or every kernel
// of it runs to its end, a fault or the time limit; nothing outside the device's memory changes.
#include "gpu/exec/executor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"

namespace {

using namespace kansoku;
using namespace kansoku::gpu;

constexpr std::size_t kTextBytesMax = 20'000;
constexpr std::uint64_t kVariableBytesMax = 1 << 16;

/// Goes on by itself, so that endless kernels end.
class HastyClock final : public Clock {
 public:
  [[nodiscard]] BootTime now() const override {
    now_ += std::chrono::milliseconds{100};
    return now_;
  }

 private:
  mutable BootTime now_{};
};

/// Large variables and arrays only take time to clear.
bool is_small(const ptx::Module& module) {
  const auto small = [](const ptx::Variable& variable) {
    return variable.bytes() <= kVariableBytesMax;
  };
  return std::all_of(module.variables.begin(), module.variables.end(), small) &&
         std::all_of(
             module.functions.begin(), module.functions.end(), [&](const ptx::Function& function) {
               return std::all_of(function.variables.begin(), function.variables.end(), small) &&
                      std::all_of(function.params.begin(), function.params.end(), small);
             });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > kTextBytesMax) return 0;
  auto module = ptx::parse_module({reinterpret_cast<const char*>(data), size});
  if (!module || !ptx::verify(*module).empty() || !is_small(*module)) return 0;
  auto memory = exec::Memory::create(1 << 22);
  CHECK(memory.has_value());
  const auto program = exec::Program::load(std::move(*module), *memory);
  if (!program) {
    CHECK(!program.error().what.empty());
    return 0;
  }
  const auto buffer = memory->allocate(4096);
  CHECK(buffer.has_value());
  const HastyClock clock;
  for (std::size_t kernel = 0; kernel < std::min<std::size_t>(program->kernels().size(), 4);
       ++kernel) {
    std::vector<std::byte> params(program->kernels()[kernel].params_total_bytes);
    for (std::size_t at = 0; at + 8 <= params.size(); at += 8)
      std::memcpy(params.data() + at, &*buffer, 8);
    exec::LaunchOptions options;
    options.block = {40, 1, 1};
    options.params = params;
    options.local_bytes = 4096;
    options.clock = &clock;
    options.time_limit = std::chrono::seconds{1};
    options.print = [](std::string_view text) { CHECK(text.size() <= (1U << 20)); };
    options.complain = options.print;
    const auto fault = exec::launch(*program, kernel, *memory, options);
    CHECK(fault || !fault.error().what.empty());
  }
  return 0;
}
