// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "cli/llm/subcommand.h"

namespace kansoku::cli {
namespace {
class LlmTop final : public Command {
 public:
  void declare(CLI::App&) override {}
  int run() override { return kExitBadInput; }
};
}  // namespace
std::unique_ptr<Command> make_llm_top() {
  return std::make_unique<LlmTop>();
}
}  // namespace kansoku::cli
