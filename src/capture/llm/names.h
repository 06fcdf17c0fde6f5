// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "capture/llm/layout.h"
#include "common/result.h"
#include "sys/elf.h"

namespace kansoku::capture::llm {

/// Reads from a process ggml's names of its operators, by the table that ggml_op_name looks them up
/// in, and its version. `file`: the one that has ggml_op_name; `bias`: to be added to its addresses
/// in the process. kNotFound without that function, kUnavailable if the process has ended or its
/// dynamic linker has not relocated the table yet: ask again, kUnsupported where its table cannot
/// be followed: no number of an operator is ever guessed.
[[nodiscard]] Result<EngineNames> read_engine_names(std::int32_t pid, sys::ElfFile& file,
                                                    std::uint64_t bias);

}  // namespace kansoku::capture::llm
