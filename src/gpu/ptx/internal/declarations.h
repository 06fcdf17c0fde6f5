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

}  // namespace kansoku::gpu::ptx
