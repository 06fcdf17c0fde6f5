// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/isa.h"
#include "gpu/exec/internal/decode/code.h"

namespace kansoku::gpu::exec {

/// One row of the operation table: an instruction form and its handler.
struct Form {
  std::string name;        // "add.u32": opcode and the suffixes that mean something here
  std::string_view shape;  // destination, then sources: i 32 bits and less, l 64 bits, p predicate
  Handler run{nullptr};
  Handler combined{nullptr};  // setp with a third source or a second destination
};

/// All forms for an instruction set, sorted by name; made once, any thread.
[[nodiscard]] const std::vector<Form>& forms(Isa isa);
/// Null if there is none of this name.
[[nodiscard]] const Form* find_form(Isa isa, std::string_view name);
/// A row of this name, which there must be, to put other handlers into. Not while programs are
/// loaded on other threads.
[[nodiscard]] Form& form_for_test(Isa isa, std::string_view name);

}  // namespace kansoku::gpu::exec
