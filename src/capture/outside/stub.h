// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kansoku::capture::outside {

/// The kernel that a host stub launches, from the stub's symbol: "_Z8norm_f32ILi32EEvPKf" for
/// "_Z23__device_stub__norm_f32ILi32EEvPKf" (clang); the symbol itself where the stub bears the
/// kernel's name (nvcc). "" for a symbol that looks like a stub's, and is broken. Any bytes.
[[nodiscard]] std::string kernel_of_stub(std::string_view symbol);

}  // namespace kansoku::capture::outside
