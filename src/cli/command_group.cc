// SPDX-License-Identifier: Apache-2.0
#include "cli/command_group.h"

#include <CLI/CLI.hpp>

namespace kansoku::cli {

void CommandGroup::declare(CLI::App& app) {
  for (const CommandEntry& entry : entries_) {
    CLI::App* const sub = app.add_subcommand(entry.name, entry.description);
    commands_.emplace_back(sub, entry.make());
    commands_.back().second->declare(*sub);
  }
  app.require_subcommand(1);
}

int CommandGroup::run() {
  for (const auto& [sub, command] : commands_) {
    if (sub->parsed()) return command->run();
  }
  return kExitBadInput;
}

}  // namespace kansoku::cli
