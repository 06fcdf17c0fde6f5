// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/python_code.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// The program's own Python function that calls `name` in processes of `pids`: the innermost one
/// around each execution, of these the one with most of the time. Views into the trace. Nothing if
/// none was (the profile has no stacks), or `name` is such a function. O(n log n) of their slices;
/// pure.
[[nodiscard]] std::optional<PythonName> own_caller(const trace::Trace& trace,
                                                   std::span<const std::int32_t> pids,
                                                   std::string_view name);

}  // namespace kansoku::diagnose
