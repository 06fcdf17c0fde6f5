// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "gpu/exec/internal/decode/code.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

struct Warp;

/// An atom or red instruction.
struct AtomicForm {
  ptx::Space space{ptx::Space::kGeneric};
  ptx::Type type{ptx::Type::kB32};
  ptx::Suffix operation{ptx::Suffix::kAdd};
  bool has_result{false};
};

/// True if the suffix names the operation of an atomic instruction.
[[nodiscard]] bool atomic_operation(ptx::Suffix suffix);
/// Value of Code::extra for run_atomic; nothing if there is no such form.
[[nodiscard]] std::optional<std::uint32_t> atomic_index(const AtomicForm& form);

/// d: the old value; a: address; b, c: operands; extra: atomic_index. Lanes in ascending order.
const Code* run_atomic(Warp& warp, const Code* code);

}  // namespace kansoku::gpu::exec
