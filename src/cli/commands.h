// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"

namespace CLI {
class App;
}

namespace kansoku::cli {

/// Exit statuses (docs/exit-codes.md).
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitPermission = 3;
inline constexpr int kExitLimit = 4;
inline constexpr int kExitTimeout = 5;
inline constexpr int kExitFindings = 10;
inline constexpr int kExitNotEnoughData = 11;

/// The status that stands for an error code.
[[nodiscard]] int exit_status(Code code);
/// Prints "kansoku: <what>" and the hint to standard error; returns the status for it.
int report(const Error& error);

/// A subcommand: registers its options with the parser, then runs. One object each, alive until the
/// program ends.
class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;
  virtual void declare(CLI::App& app) = 0;
  [[nodiscard]] virtual int run() = 0;
};

[[nodiscard]] std::unique_ptr<Command> make_record();
[[nodiscard]] std::unique_ptr<Command> make_profile();
[[nodiscard]] std::unique_ptr<Command> make_watch();
[[nodiscard]] std::unique_ptr<Command> make_top();
[[nodiscard]] std::unique_ptr<Command> make_incidents();
[[nodiscard]] std::unique_ptr<Command> make_diagnose();
[[nodiscard]] std::unique_ptr<Command> make_diff();
[[nodiscard]] std::unique_ptr<Command> make_detect();
[[nodiscard]] std::unique_ptr<Command> make_jobs();
[[nodiscard]] std::unique_ptr<Command> make_probes();
[[nodiscard]] std::unique_ptr<Command> make_doctor();
[[nodiscard]] std::unique_ptr<Command> make_demo();
[[nodiscard]] std::unique_ptr<Command> make_gpu();
[[nodiscard]] std::unique_ptr<Command> make_cuda();
[[nodiscard]] std::unique_ptr<Command> make_llm();
[[nodiscard]] std::unique_ptr<Command> make_hang();
[[nodiscard]] std::unique_ptr<Command> make_export();
[[nodiscard]] std::unique_ptr<Command> make_run();
[[nodiscard]] std::unique_ptr<Command> make_simulate();
[[nodiscard]] std::unique_ptr<Command> make_collect();

}  // namespace kansoku::cli
