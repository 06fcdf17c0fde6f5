// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/fusion.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "gpu/exec/internal/decode/form_table.h"
#include "gpu/exec/internal/decode/forms.h"
#include "gpu/exec/internal/ops/control.h"

namespace kansoku::gpu::exec {
namespace {

Handler handler_of(Isa isa, std::string_view form) {
  const Form* const found = find_form(isa, form);
  CHECK(found != nullptr);
  return found->run;
}

FusedHandlers fused_for(Isa isa) {
  switch (isa) {
    case Isa::kV2:
      return fused_v2();
    case Isa::kV3:
      return fused_v3();
    case Isa::kV4:
      break;
  }
  return fused_v4();
}

/// The fma multiplies what the two loads wrote, and neither load changes what the other reads or
/// what the fma adds. The result may lie where one of them was loaded: it is written last.
bool belong_together(const Code& first, const Code& second, const Code& fma) {
  const bool multiplies = fma.a == first.d && fma.b == second.d;
  const bool is_apart = first.d != second.d && fma.c != first.d && fma.c != second.d;
  // Addresses take two slots each.
  const auto is_address = [](const Code& load, std::uint16_t slot) {
    return slot == load.a || slot == load.a + 1;
  };
  return multiplies && is_apart && !is_address(second, first.d);
}

}  // namespace

void fuse_sequences(CompiledFunction& function, Isa isa) {
  const Handler load = handler_of(isa, ".ld.shared.b32");
  const Handler fma = handler_of(isa, "fma.rn.f32"), fma_ftz = handler_of(isa, "fma.rn.ftz.f32");
  const FusedHandlers fused = fused_for(isa);
  std::vector<Code>& code = function.code;
  for (std::size_t i = 0; i + 2 < code.size(); ++i) {
    if (code[i].run != load || code[i + 1].run != load) continue;
    if (code[i + 2].run != fma && code[i + 2].run != fma_ftz) continue;
    // A guard runs one code for some lanes only.
    if (i > 0 && code[i - 1].run == run_guard) continue;
    if (!belong_together(code[i], code[i + 1], code[i + 2])) continue;
    code[i].run = code[i + 2].run == fma ? fused.load_load_fma : fused.load_load_fma_ftz;
  }
}

}  // namespace kansoku::gpu::exec
