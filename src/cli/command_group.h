// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace kansoku::cli {

/// A subcommand, as it is listed.
struct CommandEntry {
  const char* name;
  const char* description;
  std::unique_ptr<Command> (*make)();
};

/// Some subcommands of which one has to be named: `kansoku cuda report`, `kansoku llm top`.
class CommandGroup final : public Command {
 public:
  /// Borrows the entries.
  explicit CommandGroup(std::span<const CommandEntry> entries) : entries_(entries) {}
  void declare(CLI::App& app) override;
  [[nodiscard]] int run() override;

 private:
  std::span<const CommandEntry> entries_;
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands_;
};

}  // namespace kansoku::cli
