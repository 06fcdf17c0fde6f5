// SPDX-License-Identifier: Apache-2.0
#include "cli/command_group.h"
#include "cli/commands.h"
#include "cli/cuda/subcommand.h"

namespace kansoku::cli {
namespace {

constexpr CommandEntry kCudaCommands[]{
    {"report", "add up the device work of a recording or a profile", make_cuda_report},
    {"stat", "count the driver's calls of a program, from outside", make_cuda_stat},
    {"top", "show what a program does on its GPU, live", make_cuda_top},
};

}  // namespace

std::unique_ptr<Command> make_cuda() {
  return std::make_unique<CommandGroup>(kCudaCommands);
}

}  // namespace kansoku::cli
