// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku {

/// A Python function as PyTorch's profiler names it, "model.py(45): slow_activation_hook". Views
/// into the name.
struct PythonName {
  std::string_view file, function;
  std::uint32_t line{0};  // its first
};
/// Nothing for any other name. Any thread.
[[nodiscard]] std::optional<PythonName> parse_python_name(std::string_view name);

/// True for a file of Python code that is no part of Python and of no installed package: the
/// program's own. `file`: a path, or as profilers shorten it ("torch/nn/modules/module.py",
/// "selectors.py"); then packages of Python that wait, and torch, are known by name.
[[nodiscard]] bool is_own_python_file(std::string_view file);

}  // namespace kansoku
