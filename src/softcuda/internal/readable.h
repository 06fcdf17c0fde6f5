// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kansoku::softcuda {

/// How many of `bytes` from `begin` on the process can read before the first that it cannot, so
/// that a program's input ends where its memory does: a container may promise more than the program
/// has read of its file. All of them where the kernel does not tell. Any thread.
[[nodiscard]] std::size_t readable_bytes(const void* begin, std::size_t bytes);

}  // namespace kansoku::softcuda
