// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "common/isa.h"
#include "gpu/exec/internal/ops/matrix_site.h"

namespace kansoku::gpu::exec {

/// A matrix product: "mma.m16n8k16.f32.f16.f16.f32", without the words that every mma has and
/// without the layouts, and the words of its fragments d, a, b and c.
struct MatrixForm {
  std::string name;
  std::array<std::uint32_t, 4> words{};
  MatrixProduct run{nullptr};
};

/// All of them for an instruction set, sorted by name; made once, any thread.
[[nodiscard]] const std::vector<MatrixForm>& matrix_forms(Isa isa);
/// Null if there is none of this name.
[[nodiscard]] const MatrixForm* find_matrix_form(Isa isa, std::string_view name);
/// To put another product into. Not while programs are loaded on other threads.
[[nodiscard]] MatrixForm& matrix_form_for_test(Isa isa, std::string_view name);

}  // namespace kansoku::gpu::exec
