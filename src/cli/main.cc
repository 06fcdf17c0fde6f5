// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/command_group.h"
#include "cli/commands.h"
#include "cli/wiring.h"
#include "common/text.h"
#include "sys/trust.h"

namespace kansoku::cli {

int exit_status(Code code) {
  switch (code) {
    case Code::kNotFound:
    case Code::kCorrupt:
    case Code::kUnsupported:
      return kExitBadInput;
    case Code::kPermission:
      return kExitPermission;
    case Code::kLimit:
      return kExitLimit;
    case Code::kTimeout:
      return kExitTimeout;
    case Code::kUnavailable:
    case Code::kInternal:
      return kExitFailed;
  }
  return kExitFailed;
}

namespace {

/// Line by line, since a message may quote a file, a process or a server.
std::string printable_message(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += (at == 0 ? "" : "\n") + printable(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

int report(const Error& error) {
  say(stderr, "kansoku: " + printable_message(error.what));
  if (!error.hint.empty()) say(stderr, "  hint: " + printable_message(error.hint));
  return exit_status(error.code);
}

namespace {

constexpr CommandEntry kCommands[]{
    {"record", "record a job into a trace, from outside", make_record},
    {"profile",
     "profile all ranks of a job at once: now, or when the job slows down or stands still",
     make_profile},
    {"watch", "watch every AI process of this host and report incidents", make_watch},
    {"top", "show the live state of watch: ranks, steps, GPU, anomalies", make_top},
    {"incidents", "list, show and label the incidents of watch", make_incidents},
    {"diagnose", "find the cause of a slow-down or hang in a trace", make_diagnose},
    {"diff",
     "compare recordings before and after a change: which kernel, operator, function or call",
     make_diff},
    {"detect", "learn a job's normal behaviour from a table of numbers; score a run against it",
     make_detect},
    {"demo", "run an example training job with a planted fault and diagnose it", make_demo},
    {"jobs", "list the distributed jobs that run on this host", make_jobs},
    {"run", "run a program on the software GPU", make_run},
    {"gpu", "list the kernels of a file, run one on the software GPU, show devices", make_gpu},
    {"hang", "explain a job that stands still: who waits for whom, in which line, on which kernel",
     make_hang},
    {"cuda", "show what programs do on their GPUs", make_cuda},
    {"llm", "show what a model in inference does: tokens, graphs, operators, threads", make_llm},
    {"export", "write a recording for other tools", make_export},
    {"collect", "collect the summaries of many hosts: lost hosts, jobs, incidents", make_collect},
    {"simulate", "simulate a platform: fit, synthesise, replay and compare policies",
     make_simulate},
    {"probes", "list the probe packs and the functions that they attach to", make_probes},
    {"doctor", "list the features that this host supports, and fixes for the rest", make_doctor},
};

// The first word of the command line that should be a command, and is none; told with the one that
// was meant, before the parser says that a command is missing.
Result<void> check_commands(CLI::App& app, int argc, char** argv) {
  CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto subs = at->get_subcommands([](const CLI::App*) { return true; });
    if (subs.empty() || word.starts_with("-")) return {};
    std::vector<std::string> known;
    CLI::App* next = nullptr;
    for (CLI::App* sub : subs) {
      known.push_back(sub->get_name());
      if (sub->get_name() == word) next = sub;
    }
    if (next == nullptr) {
      const std::string meant = nearest_word(word, known);
      return Error{Code::kNotFound, fmt::format("{}: no such command", word),
                   meant.empty() ? fmt::format("commands: {}", fmt::join(known, ", "))
                                 : fmt::format("did you mean {}?", meant)};
    }
    at = next;
  }
  return {};
}

int run(int argc, char** argv) {
  if (const auto checked = sys::check_environment(); !checked) return report(checked.error());
  CLI::App app{
      "Kansoku observes AI training and inference jobs from outside, without changes to their "
      "code.\n"
      "Start with `kansoku demo`; record your own job with `kansoku record -p PID -o "
      "run.pftrace`."};
  app.set_version_flag("--version", "kansoku " + version_text());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands;
  for (const CommandEntry& entry : kCommands) {
    CLI::App* sub = app.add_subcommand(entry.name, entry.description);
    commands.emplace_back(sub, entry.make());
    commands.back().second->declare(*sub);
  }
  if (const auto checked = check_commands(app, argc, argv); !checked)
    return report(checked.error());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_answer = error.get_exit_code() == 0;  // --help, --version
    app.exit(error);
    return is_answer ? kExitOk : kExitBadInput;
  }
  for (const auto& [sub, command] : commands) {
    if (sub->parsed()) return command->run();
  }
  return kExitBadInput;
}

}  // namespace
}  // namespace kansoku::cli

int main(int argc, char** argv) {
  try {
    const int status = kansoku::cli::run(argc, argv);
    // An answer that nobody can read is none: a full disk shows at the last write.
    const bool is_flushed = std::fflush(stdout) == 0;
    const int reason = errno;
    if (is_flushed && std::ferror(stdout) == 0) return status;
    kansoku::cli::say(stderr, "kansoku: write standard output: " +
                                  (is_flushed ? std::string("a part of it was lost")
                                              : std::generic_category().message(reason)));
    return kansoku::cli::kExitFailed;
  } catch (const std::exception& error) {
    // Standard output may be closed, and so may be standard error.
    kansoku::cli::say(stderr, std::string("kansoku: internal error: ") + error.what());
    return kansoku::cli::kExitFailed;
  }
}
