// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kansoku::sys {

/// A GPU kernel's name for people, from its name in the module: "_Z9mul_mat_qIL9ggml_type12ELi128E
/// Lb0EEvPKc" is "mul_mat_q<Q4_K, 128>". Without return type, parameters and namespaces; values of
/// enumerations that are known by name have it; trailing `false` arguments of templates are left
/// out; beyond 72 characters arguments are cut behind "...". Two kernels may share a short name:
/// the full one is kept beside it. Any thread.
[[nodiscard]] std::string short_kernel_name(const std::string& mangled);

}  // namespace kansoku::sys
