// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "common/result.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

inline constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;
inline constexpr std::size_t kInitialBytesMax = std::size_t{64} << 20;  // of one variable

/// PTX text (ISA 7.0 to 9.0, as clang and nvcc write it) as IR. Opcodes and directives that are not
/// known are kept with their text (Op::kUnknown, RawDirective); names that nobody declared,
/// malformed numbers and statements are kCorrupt, PTX that is not supported is kUnsupported, each
/// with line and column; texts and initialisers beyond the limits above are kLimit. Does not check
/// that operands fit their opcode: verify() does. Time and memory grow linearly with the text.
/// Pure; any thread.
[[nodiscard]] Result<Module> parse_module(std::string_view untrusted);

}  // namespace kansoku::gpu::ptx
