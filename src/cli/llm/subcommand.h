// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cli/commands.h"

namespace kansoku::cli {

// Commands of `kansoku llm`, one file each; llm.cc lists them.
[[nodiscard]] std::unique_ptr<Command> make_llm_record();
[[nodiscard]] std::unique_ptr<Command> make_llm_report();
[[nodiscard]] std::unique_ptr<Command> make_llm_top();

}  // namespace kansoku::cli
