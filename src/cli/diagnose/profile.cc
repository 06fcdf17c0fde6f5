// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/diagnose/analysis.h"
#include "cli/diagnose/profile_windows.h"
#include "cli/option_values.h"
#include "cli/record/session.h"
#include "common/parse.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

class Profile final : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    app.add_option("-p,--pid", options_.pids,
                   "profile this process and its descendants (repeatable)");
    app.add_option("--job", options_.job, "profile a running job by name (see `kansoku jobs`)");
    app.add_option("--window", window_, "duration of one window over all ranks")
        ->capture_default_str();
    app.add_option("--at-step", steps_.first,
                   "record from this step on, on all ranks at once; steps are counted from the "
                   "program's first one that was seen")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
    app.add_option("--steps", steps_.count, "with --at-step: so many steps")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_option("--step-mark", steps_.mark,
                   "with --at-step: the call that begins a step, by the begin of its name "
                   "(default: optimizer step, backward pass, or data loader)");
    app.add_option("--calls-per-step", steps_.calls_per_step,
                   "with --step-mark: so many of these calls are a step")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str();
    app.add_option("--cuda", cuda_,
                   "windows have GPU work, too: every operation (every) or as many as cost next "
                   "to nothing (sampled); a command gets Kansoku's CUDA library")
        ->expected(0, 1)
        ->default_str("every")
        ->check(CLI::IsMember({"every", "sampled"}));
    app.add_flag("--watch", options_.watches,
                 "profile at each slow-down or standstill, and keep waiting for the next");
    app.add_flag("--once", options_.once, "with --watch: stop after the first finding");
    app.add_option("--every", every_, "with --watch: also profile on schedule, e.g. 10m");
    app.add_option("--for", duration_, "with --watch: stop after this time");
    app.add_option("--slow", slow_percent_,
                   "slow-down threshold, in per cent above the shortest recent mean iteration")
        ->check(CLI::Range(1.0, 1000.0))
        ->capture_default_str();
    app.add_option("--blocked", options_.incidents.iteration.blocked_multiple,
                   "standstill threshold, in mean iterations without an event")
        ->check(CLI::Range(2.0, 10000.0))
        ->capture_default_str();
    app.add_option("--probes", options_.probes,
                   "packs that a window records, as for `kansoku record`")
        ->capture_default_str();
    app.add_option("--watch-probes", options_.watch_probes,
                   "packs that are attached all the time, and count steps")
        ->capture_default_str();
    app.add_flag("--kineto", options_.serves_kineto,
                 "also run the profilers of PyTorch processes started with KINETO_USE_DAEMON=1");
    app.add_option("-o,--output", options_.folder, "folder for traces and reports")
        ->capture_default_str();
    app.add_flag("--json", options_.json, "print one JSON object per window (kansoku.incident/1)");
    app.add_flag("-q,--quiet", options_.quiet, "hide progress on standard error");
    app.add_option("command", options_.command, "command to start and watch, after --");
    app.footer(
        "Examples:\n"
        "  kansoku profile --job 127.0.0.1:29500\n"
        "  kansoku profile --at-step 100 --steps 10 --cuda -- torchrun --nproc-per-node 4 "
        "train.py\n"
        "  kansoku profile --watch -- torchrun --nproc-per-node 4 train.py\n"
        "Exit status: 10 if a window led to a finding, else the command's own, or 0.");
  }

  int run() override {
    has_steps_ = app_->count("--at-step") > 0;
    if (const auto bad = read_options(); !bad) return report(bad.error());
    if (::mkdir(options_.folder.c_str(), 0700) != 0 && errno != EEXIST)
      return report(errno_error(errno, "create folder", options_.folder));
    const auto result = run_watch(options_);
    if (!result) return report(result.error());
    if (result->finding_count > 0) return kExitFindings;
    return result->command_status.value_or(kExitOk);
  }

 private:
  Result<void> read_options() {
    const int targets = (options_.pids.empty() ? 0 : 1) + (options_.job.empty() ? 0 : 1) +
                        (options_.command.empty() ? 0 : 1);
    if (targets != 1) {
      return Error{Code::kUnsupported, "profile: name one target: -p PID, --job NAME or -- COMMAND",
                   "`kansoku jobs` lists the jobs that run here"};
    }
    if (has_steps_ && options_.serves_kineto) {
      return Error{Code::kUnsupported,
                   "profile: --kineto needs twelve seconds' notice, which steps do not give",
                   "leave --at-step or --kineto out"};
    }
    if (steps_.mark.empty() && app_->count("--calls-per-step") > 0) {
      return Error{Code::kUnsupported, "profile: --calls-per-step needs --step-mark"};
    }
    if (has_steps_ && options_.watches) {
      return Error{Code::kUnsupported, "profile: --at-step takes one window; leave --watch out"};
    }
    if (!has_steps_ && (!steps_.mark.empty() || app_->count("--steps") > 0)) {
      return Error{Code::kUnsupported, "profile: --steps and --step-mark need --at-step"};
    }
    if (has_steps_) options_.steps = steps_;
    if (cuda_) {
      options_.cuda.emplace();
      if (*cuda_ == "sampled") options_.cuda->mode = capture::cuda::Mode::kSampled;
    }
    TRY(options_.window, read_time("--window", window_, std::chrono::milliseconds{500}));
    if (!every_.empty()) {
      TRY(options_.every, read_time("--every", every_, options_.window));
    }
    if (!duration_.empty()) {
      TRY(options_.duration, read_time("--for", duration_, std::chrono::seconds{1}));
    }
    if (!options_.watches && (options_.once || !every_.empty() || !duration_.empty())) {
      return Error{Code::kUnsupported, "profile: --once, --every and --for need --watch",
                   "without --watch, `kansoku profile` takes one window at once"};
    }
    options_.incidents.iteration.slow_ratio = slow_percent_ / 100;
    return {};
  }

  WatchOptions options_;
  StepOptions steps_;
  std::optional<std::string> cuda_;
  bool has_steps_{false};
  CLI::App* app_{nullptr};
  std::string window_{"20s"}, every_, duration_;
  double slow_percent_{5};
};

}  // namespace

std::unique_ptr<Command> make_profile() {
  return std::make_unique<Profile>();
}

}  // namespace kansoku::cli
