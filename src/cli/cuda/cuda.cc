// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/cuda/subcommand.h"

namespace kansoku::cli {
namespace {

struct CudaEntry {
  const char* name;
  const char* description;
  std::unique_ptr<Command> (*make)();
};

constexpr CudaEntry kCudaCommands[]{
    {"report", "add up the device work of a recording or a profile", make_cuda_report},
    {"stat", "count the driver's calls of a program, from outside", make_cuda_stat},
    {"top", "show what a program does on its GPU, live", make_cuda_top},
};

class Cuda final : public Command {
 public:
  void declare(CLI::App& app) override {
    for (const CudaEntry& entry : kCudaCommands) {
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

std::unique_ptr<Command> make_cuda() {
  return std::make_unique<Cuda>();
}

}  // namespace kansoku::cli
