// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string>

#include "cli/llm/model_options.h"
#include "cli/llm/subcommand.h"
#include "cli/option_values.h"
#include "cli/record/session.h"
#include "sys/procfs.h"

namespace kansoku::cli {
namespace {

class LlmRecord final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("-p,--pid", options_.pids,
                   "observe this process and its descendants (repeatable; default without a "
                   "command: every process that runs llama.cpp)");
    app.add_option("-o,--output", options_.output, "trace file to write (mode 0600)")->required();
    arguments_.declare(app);
    app.add_option("--probes", more_, "more packs, e.g. sched or cuda (see `kansoku probes list`)");
    app.add_option("--duration", duration_,
                   "stop after this time, e.g. 30s, 2m (default: until the end)");
    app.add_option("--ring-bytes", ring_, "size of the event ring, a power of two")
        ->capture_default_str();
    app.add_option("--attach", options_.attach, "use only this kind of uprobe: multi or perf")
        ->check(CLI::IsMember({"session", "multi", "perf"}));
    app.add_flag("--force", options_.overwrite, "overwrite the output file");
    app.add_flag("-q,--quiet", options_.quiet, "hide the status line");
    app.add_option("command", options_.command, "command to start and observe, after --");
    app.footer(
        "Examples:\n"
        "  kansoku llm record --duration 10s -o run.pftrace\n"
        "  kansoku llm record -p 4121 --level thread --budget none --duration 10s -o run.pftrace\n"
        "  kansoku llm record -o run.pftrace -- llama-completion -m model.gguf -p hello\n"
        "Exit status: the command's own; without a command 0, or a status of docs/exit-codes.md.");
  }

  int run() override {
    if (const auto bad = read_options(); !bad) return report(bad.error());
    const auto result = run_session(options_);
    if (!result) return report(result.error());
    for (const std::string& problem : result->problems)
      if (problem.starts_with("process ")) fmt::print(stderr, "kansoku: {}\n", problem);
    if (!options_.quiet) {
      fmt::print(stderr, "kansoku: wrote {}: {} events, {} bytes, {} lost\n", options_.output,
                 result->last.events, result->last.bytes, result->last.lost);
      fmt::print(stderr, "kansoku: next: kansoku llm report {}\n", options_.output);
    }
    const int status = result->recording_error ? report(*result->recording_error) : kExitOk;
    return result->command_status.value_or(status);
  }

 private:
  Result<void> read_options() {
    TRY_VOID(arguments_.apply(options_));
    if (!more_.empty()) options_.probes += "," + more_;
    TRY(const auto probes, model_probes(options_));
    const std::vector<std::int32_t> running = find_model_processes(sys::Procfs(), probes);
    for (const std::int32_t pid : options_.pids) {
      if (std::find(running.begin(), running.end(), pid) == running.end())
        fmt::print(
            stderr,
            "kansoku: process {} has no library of llama.cpp; what it starts, or loads later, is "
            "looked at. A program that holds llama.cpp itself is known by its name, llama-*; for "
            "another name pass a pack: docs/llm.md\n",
            pid);
    }
    if (options_.pids.empty() && options_.command.empty()) {
      options_.pids = running;
      if (options_.pids.empty())
        return Error{Code::kNotFound, "llm record: no process here runs llama.cpp",
                     "name one with -p PID, or start it: kansoku llm record -o FILE -- COMMAND"};
    }
    if (!options_.pids.empty() && !options_.command.empty())
      return Error{Code::kUnsupported, "llm record: name one target: -p PID or -- COMMAND"};
    if (!duration_.empty()) {
      TRY(options_.duration, read_time("--duration", duration_));
    }
    TRY(options_.ring_bytes, read_ring_bytes(ring_));
    return {};
  }

  SessionOptions options_;
  ModelArguments arguments_;
  std::string more_, duration_, ring_{"64M"};
};

}  // namespace

std::unique_ptr<Command> make_llm_record() {
  return std::make_unique<LlmRecord>();
}

}  // namespace kansoku::cli
