// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kansoku {

/// True for a file of Python code that is no part of Python and of no installed package: the
/// program's own. `file`: a path, or as profilers shorten it ("torch/nn/modules/module.py",
/// "selectors.py"); then packages of Python that wait, and torch, are known by name.
[[nodiscard]] bool is_own_python_file(std::string_view file);

}  // namespace kansoku
