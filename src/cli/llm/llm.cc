// SPDX-License-Identifier: Apache-2.0
#include "cli/command_group.h"
#include "cli/commands.h"
#include "cli/llm/subcommand.h"

namespace kansoku::cli {
namespace {

constexpr CommandEntry kLlmCommands[]{
    {"record", "record tokens, graphs, operators and threads of a model in inference",
     make_llm_record},
    {"report", "add up what a recording holds of models in inference", make_llm_report},
    {"top", "show a model's speed and its slowest operators, live", make_llm_top},
};

}  // namespace

std::unique_ptr<Command> make_llm() {
  return std::make_unique<CommandGroup>(kLlmCommands);
}

}  // namespace kansoku::cli
