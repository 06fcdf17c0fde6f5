// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "capture/llm/live.h"
#include "cli/llm/model_options.h"
#include "cli/llm/subcommand.h"
#include "cli/option_values.h"
#include "cli/screen.h"
#include "cli/wiring.h"
#include "common/bytes.h"
#include "common/text.h"
#include "infer/figures.h"
#include "infer/peaks.h"
#include "infer/report.h"
#include "infer/run.h"
#include "sys/clock.h"
#include "trace/reader.h"

namespace kansoku::cli {
namespace {

class LlmTop final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("-p,--pid", pids_,
                   "process to look at (repeatable; default: every one that runs llama.cpp)");
    arguments_.declare(app);
    app.add_option("--interval", interval_, "time between two screens, at least 1s")
        ->capture_default_str();
    app.add_option("--rows", options_.rows, "rows of a table")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_flag("--once", once_, "print one screen, of one interval, and exit");
    app.add_flag("--json", json_, "print JSON, one line a screen (schema kansoku.llm.report/2)");
    app.add_flag("--no-peaks", no_peaks_,
                 "do not measure this machine: no comparison with what it can do");
    app.footer(
        "Shows tokens a second, the slowest operators and nodes, and how near each comes to what\n"
        "the machine can do. What costs more than the budget is looked at now and then.\n"
        "Examples:\n"
        "  kansoku llm top\n"
        "  kansoku llm top -p 4121 --level thread --budget 5%\n"
        "  kansoku llm top --once --json");
  }

  int run() override {
    const auto done = show_all();
    return done ? kExitOk : report(done.error());
  }

 private:
  Result<void> show_all() {
    TRY(const Nanos interval, read_time("--interval", interval_, std::chrono::seconds{1}));
    install_signal_counter();
    const sys::Procfs procfs;
    const sys::RealClock clock;
    TRY(auto source, source_options());
    if (pids_.empty()) pids_ = find_model_processes(procfs, source.probes);
    if (pids_.empty())
      return Error{Code::kNotFound, "llm top: no process here runs llama.cpp",
                   "start one, or name it with -p PID"};
    tell_without_model(procfs, source.probes);
    TRY(const auto live, capture::llm::Live::create(clock, procfs, std::move(source), pids_));
    if (!no_peaks_) options_.peaks = infer::measure_peaks(1, clock);
    const bool is_live = ::isatty(STDOUT_FILENO) != 0 && !once_ && !json_;
    while (signal_count() == 0) {
      const auto window = live->window(
          interval, [] { return signal_count() > 0; },
          [](BootTime until) { sys::sleep_until(until); });
      if (!window) return shown_ ? Result<void>{} : window.error();
      TRY_VOID(show(*window, clock.now(), is_live));
      for (; told_ < live->problems().size(); ++told_)
        fmt::print(stderr, "kansoku: {}\n", live->problems()[told_]);
      if (once_) break;
    }
    return {};
  }

  /// A process without any of the files that packs name shows nothing: that is said, not shown.
  void tell_without_model(const sys::Procfs& procfs,
                          const std::vector<capture::FunctionProbes>& probes) const {
    const std::vector<std::int32_t> models = find_model_processes(procfs, probes);
    std::set<std::string> names;
    for (const capture::FunctionProbes& one : probes)
      names.insert(one.library);
    for (const std::int32_t pid : pids_)
      if (std::find(models.begin(), models.end(), pid) == models.end())
        fmt::print(stderr,
                   "kansoku: process {} has mapped no file that the packs name ({}): nothing of it "
                   "is shown until it does\n",
                   pid, fmt::join(names, ", "));
  }

  Result<capture::llm::SourceOptions> source_options() const {
    SessionOptions session;
    TRY_VOID(arguments_.apply(session));
    capture::llm::SourceOptions out;
    TRY(out.probes, model_probes(session));
    out.level = session.model->level;
    out.budget = session.model->budget;
    out.ring_bytes = 64U << 20;
    return out;
  }

  Result<void> show(const std::string& window, BootTime now, bool is_live) {
    TRY(const trace::Trace trace, trace::read_trace(as_bytes(window)));
    infer::Report made = infer::make_report(infer::read_run(trace));
    shown_ = true;
    if (json_) {
      fmt::print("{}\n", infer::to_json(made, options_).dump());
      std::fflush(stdout);
      return {};
    }
    const bool has_operators =
        std::any_of(made.processes.begin(), made.processes.end(),
                    [](const auto& process) { return !process.operators.empty(); });
    if (has_operators) {
      closer_ = made;
      closer_at_ = now;
    }
    const double age = static_cast<double>((now - closer_at_).count()) * 1e-9;
    const std::string text = infer::live_text(made, closer_, age, options_);
    Lines lines{fmt::format("kansoku llm top  {}", fmt::join(pids_, " "))};
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    show_screen(lines, is_live);
    return {};
  }

  std::vector<std::int32_t> pids_;
  ModelArguments arguments_;
  infer::ReportOptions options_{.rows = 8};
  std::string interval_{"2s"};
  bool once_{false}, json_{false}, no_peaks_{false}, shown_{false};
  infer::Report closer_;
  BootTime closer_at_{};
  std::size_t told_{0};
};

}  // namespace

std::unique_ptr<Command> make_llm_top() {
  return std::make_unique<LlmTop>();
}

}  // namespace kansoku::cli
