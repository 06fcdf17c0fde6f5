// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "common/result.h"
#include "gpu/ptx/internal/token_stream.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// ".global" and the like, or nothing.
[[nodiscard]] std::optional<Space> space_from_name(std::string_view word);

/// `.space` has been read: the rest of a declaration up to and including `;`, one entry a name.
[[nodiscard]] Result<std::vector<Variable>> parse_variables(TokenStream& stream, Space space,
                                                            Linkage linkage);

/// `( .param ... , ... )`, or nothing if there is no parenthesis.
[[nodiscard]] Result<std::vector<Variable>> parse_parameters(TokenStream& stream);

/// A directive that is kept as text: to the end of its line for .loc and .file, which are known,
/// else to the end of the statement.
[[nodiscard]] Result<RawDirective> parse_raw_directive(TokenStream& stream, bool is_known);

}  // namespace kansoku::gpu::ptx
