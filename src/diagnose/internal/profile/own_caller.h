// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trace/model.h"

namespace kansoku::diagnose {

/// A Python function as profilers name it: "model.py(45): slow_activation_hook".
struct PythonName {
  std::string function, file;
  std::uint32_t line{0};  // its first
};
[[nodiscard]] std::optional<PythonName> parse_python_name(std::string_view name);

/// The program's own Python function that calls `name` in processes of `pids`: the innermost one
/// around each execution, of these the one with most of the time. Nothing if none was (the profile
/// has no stacks), or `name` is such a function. O(n log n) of their slices; pure.
[[nodiscard]] std::optional<PythonName> own_caller(const trace::Trace& trace,
                                                   std::span<const std::int32_t> pids,
                                                   std::string_view name);

}  // namespace kansoku::diagnose
