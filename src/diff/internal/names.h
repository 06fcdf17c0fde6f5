// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kansoku::diff {

/// A kernel's name in one spelling: demangled, without return type, parameters, clone suffixes,
/// anonymous namespaces and spare blanks, so that recorders that spell it otherwise agree. A name
/// that is not understood stays as it is. Any thread.
[[nodiscard]] std::string canonical_kernel(std::string_view untrusted);

/// Family of a canonical name: without template arguments, each run of digits as '#'. Names of one
/// family may be the same kernel for other types, tiles or numbers of a compiler.
[[nodiscard]] std::string family_of(std::string_view canonical);

/// Words among the template arguments of a canonical name that say what it computes: functors,
/// lambdas, their namespaces; scalar types and numbers left out. "" without any: two kernels of one
/// family whose words differ are two kernels.
[[nodiscard]] std::string functors_of(std::string_view canonical);

/// The name of a range without its number: "iteration #" for "iteration 17".
[[nodiscard]] std::string unnumbered(std::string_view name);

/// For people: namespaces left out, at most `columns_max` bytes, "..." where something was cut.
[[nodiscard]] std::string shown_name(std::string_view canonical, std::size_t columns_max);

}  // namespace kansoku::diff
