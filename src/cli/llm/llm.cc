// SPDX-License-Identifier: Apache-2.0
#include "cli/llm/subcommand.h"

#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

namespace kansoku::cli {
namespace {

struct LlmEntry {
  const char* name;
  const char* description;
  std::unique_ptr<Command> (*make)();
};

constexpr LlmEntry kLlmCommands[]{
    {"record", "record tokens, graphs, operators and threads of a model in inference",
     make_llm_record},
    {"report", "add up what a recording holds of models in inference", make_llm_report},
    {"top", "show a model's speed and its slowest operators, live", make_llm_top},
};

class Llm final : public Command {
 public:
  void declare(CLI::App& app) override {
    for (const LlmEntry& entry : kLlmCommands) {
      CLI::App* const sub = app.add_subcommand(entry.name, entry.description);
      commands_.emplace_back(sub, entry.make());
      commands_.back().second->declare(*sub);
    }
    app.require_subcommand(1);
  }

  int run() override {
    for (const auto& [sub, command] : commands_) {
      if (sub->parsed()) return command->run();
    }
    return kExitBadInput;
  }

 private:
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands_;
};

}  // namespace

std::unique_ptr<Command> make_llm() {
  return std::make_unique<Llm>();
}

}  // namespace kansoku::cli
