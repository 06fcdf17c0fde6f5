// SPDX-License-Identifier: Apache-2.0
// Any bytes as PTX: parsing fails, naming a place, or gives a module that survives printing; every
// analysis holds on whatever was parsed.
#include "gpu/ptx/parser.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "gpu/ptx/cfg.h"
#include "gpu/ptx/linear_form.h"
#include "gpu/ptx/printer.h"
#include "gpu/ptx/uniformity.h"
#include "gpu/ptx/verifier.h"

namespace {

using namespace kansoku::gpu::ptx;

void analyse(const Function& function) {
  const Cfg cfg = build_cfg(function);
  const auto dominators = immediate_dominators(cfg);
  const auto post_dominators = immediate_post_dominators(cfg);
  CHECK(dominators.size() == cfg.blocks.size() && post_dominators.size() == cfg.blocks.size());
  const UniformityResult uniformity = analyse_uniformity(function, cfg);
  CHECK(uniformity.registers.size() == function.registers.size());
  LinearForms forms(function);
  for (std::uint32_t i = 0; i < function.registers.size(); ++i)
    CHECK(forms.of_register(i).terms.size() <= 16);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto module = parse_module(text);
  if (!module) {
    CHECK(module.error().what.starts_with("p"));
    return 0;
  }
  const auto again = parse_module(print_module(*module));
  CHECK(again.has_value());
  CHECK(*again == *module);
  CHECK(verify(*module).size() <= kDiagnosticsMax);
  for (const Function& function : module->functions)
    analyse(function);
  return 0;
}
