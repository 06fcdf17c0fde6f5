// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cli/commands.h"

namespace kansoku::cli {

// Commands of `kansoku cuda`, one file each; cuda.cc lists them.
[[nodiscard]] std::unique_ptr<Command> make_cuda_report();
[[nodiscard]] std::unique_ptr<Command> make_cuda_stat();
[[nodiscard]] std::unique_ptr<Command> make_cuda_top();

}  // namespace kansoku::cli
