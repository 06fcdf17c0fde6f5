// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kansoku::sys {

/// Reads another process's memory, which neither stops the process nor waits for it: how many bytes
/// from the front of `into` were read; 0 also if it is gone or may not be read. The bytes are that
/// process's word: untrusted.
[[nodiscard]] std::size_t read_process_memory(std::int32_t pid, std::uint64_t address,
                                              std::span<std::byte> into);
/// False: it has ended, whether or not its parent knows. What was read before may be cut short.
[[nodiscard]] bool has_memory(std::int32_t pid);
/// A text of C there, of at most `bytes_max` bytes with its end; "" if there is none.
[[nodiscard]] std::string read_process_text(std::int32_t pid, std::uint64_t address,
                                            std::size_t bytes_max);

}  // namespace kansoku::sys
