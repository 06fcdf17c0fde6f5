// SPDX-License-Identifier: Apache-2.0
#include "infer/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "cli/llm/subcommand.h"
#include "infer/figures.h"
#include "infer/peaks.h"
#include "infer/run.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "trace/reader.h"

namespace kansoku::cli {
namespace {

class LlmReport final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("file", file_, "recording of `kansoku llm record`")->required();
    app.add_option("--top", options_.rows, "rows of a table")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_flag("--json", json_, "print JSON (schema kansoku.llm.report/1)");
    app.add_flag("--no-peaks", no_peaks_,
                 "do not measure this machine: no comparison with what it can do");
    app.footer(
        "Examples:\n"
        "  kansoku llm report run.pftrace\n"
        "  kansoku llm report run.pftrace --json --no-peaks\n"
        "Exit status: 11 if the recording holds no model in inference.");
  }

  int run() override {
    const auto status = print();
    return status ? *status : report(status.error());
  }

 private:
  Result<int> print() {
    TRY(const auto recording, sys::MappedFile::open(file_));
    TRY(const trace::Trace trace, trace::read_trace(recording.bytes()));
    const infer::Report made = infer::make_report(infer::read_run(trace));
    if (!no_peaks_ && !made.processes.empty()) {
      std::size_t threads = 1;
      for (const infer::ProcessFigures& process : made.processes)
        threads = std::max(threads, process.threads.size());
      options_.peaks = infer::measure_peaks(static_cast<std::uint32_t>(threads), sys::RealClock());
    }
    if (json_)
      fmt::print("{}\n", infer::to_json(made, options_).dump(2));
    else
      fmt::print("{}", infer::to_text(made, options_));
    return made.processes.empty() ? kExitNotEnoughData : kExitOk;
  }

  std::string file_;
  infer::ReportOptions options_;
  bool json_{false}, no_peaks_{false};
};

}  // namespace

std::unique_ptr<Command> make_llm_report() {
  return std::make_unique<LlmReport>();
}

}  // namespace kansoku::cli
