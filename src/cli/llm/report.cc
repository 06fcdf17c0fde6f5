// SPDX-License-Identifier: Apache-2.0
#include "infer/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "cli/llm/subcommand.h"
#include "cli/output_file.h"
#include "export/llm_html.h"
#include "infer/figures.h"
#include "infer/findings.h"
#include "infer/peaks.h"
#include "infer/run.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "trace/reader.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kModelRowsOfPage = 30;

class LlmReport final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("file", file_, "recording of `kansoku llm record`")->required();
    app.add_option("--top", options_.rows, "rows of a table")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_flag("--json", json_, "print JSON (schema kansoku.llm.report/2)");
    app.add_option("--html", html_, "also write an HTML page");
    app.add_flag("--force", force_, "overwrite a file of another kind");
    app.add_option("--base", base_, "another recording of the program: show what changed since");
    app.add_flag("--no-peaks", no_peaks_,
                 "do not measure this machine: no comparison with what it can do");
    app.footer(
        "Examples:\n"
        "  kansoku llm report run.pftrace\n"
        "  kansoku llm report run.pftrace --html tokens.html\n"
        "  kansoku llm report run.pftrace --json --no-peaks\n"
        "  kansoku llm report today.pftrace --base yesterday.pftrace\n"
        "Exit status: 10 if there is a finding, 11 if the recording holds no model in inference.");
  }

  int run() override {
    const auto page =
        check_output(html_, {.kind = FileKind::kPage, .force = force_, .inputs = {file_}});
    if (!page) return report(page.error());
    const auto status = print();
    return status ? *status : report(status.error());
  }

 private:
  Result<int> print() {
    TRY(const auto recording, sys::MappedFile::open(file_));
    TRY(const trace::Trace trace, trace::read_trace(recording.bytes()));
    const infer::Run run = infer::read_run(trace);
    const infer::Report made = infer::make_report(run);
    TRY(const infer::Verdict verdict, judge(run, made));
    if (!no_peaks_ && !made.processes.empty()) {
      std::size_t threads = 1;
      for (const infer::ProcessFigures& process : made.processes)
        threads = std::max(threads, process.threads.size());
      options_.peaks = infer::measure_peaks(static_cast<std::uint32_t>(threads), sys::RealClock());
    }
    if (json_)
      fmt::print("{}\n", infer::to_json(made, options_, verdict).dump(2));
    else
      fmt::print("{}", infer::to_text(made, options_, verdict));
    if (!html_.empty()) TRY_VOID(write_page(run, made, verdict));
    if (made.processes.empty()) return kExitNotEnoughData;
    return verdict.findings.empty() ? kExitOk : kExitFindings;
  }

  Result<infer::Verdict> judge(const infer::Run& run, const infer::Report& made) const {
    infer::Verdict out;
    TRY(out.devices, infer::device_figures(run));
    out.findings = infer::find_causes(run, made, out.devices);
    if (base_.empty()) return out;
    TRY(const auto recording, sys::MappedFile::open(base_));
    TRY(const trace::Trace trace, trace::read_trace(recording.bytes()));
    out.comparison = infer::compare(infer::make_report(infer::read_run(trace)), made);
    for (const infer::Finding& finding : out.comparison->findings)
      out.findings.push_back(finding);
    return out;
  }

  Result<void> write_page(const infer::Run& run, const infer::Report& made,
                          const infer::Verdict& verdict) const {
    infer::ReportOptions options = options_;
    options.rows = std::max(options.rows, kModelRowsOfPage);
    TRY(const std::string html,
        exporter::llm_html(infer::to_json(made, options, verdict), infer::view_json(run, made)));
    TRY_VOID(sys::write_file(html_, html));
    if (!json_) fmt::print("report: {}\n", html_);
    return {};
  }

  std::string file_, base_, html_;
  infer::ReportOptions options_;
  bool json_{false}, no_peaks_{false}, force_{false};
};

}  // namespace

std::unique_ptr<Command> make_llm_report() {
  return std::make_unique<LlmReport>();
}

}  // namespace kansoku::cli
