// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kansoku::bench {

/// One instruction, as text, over the registers that op_bench.cc sets: %r1 to %r3 any words, %f1 to
/// %f3, %fd1 to %fd3, halves %h1 to %h3 (pairs %r4 to %r6), bfloats %h7 to %h9 (pairs %r7 to %r9),
/// %r10 numbers of lanes, %r21 and %r22 words that all lanes share; results go to %r16, %f4, %fd4,
/// %h16, %rd3, %p2. Run by so many warps of one block, which must all come to a barrier.
struct OpCase {
  std::string_view name;
  std::string_view text;
  std::uint32_t warps{1};
};
[[nodiscard]] std::span<const OpCase> op_cases();

}  // namespace kansoku::bench
