// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/cuda/subcommand.h"
#include "cli/diagnose/device_work.h"
#include "cli/diagnose/sources.h"
#include "cli/output_file.h"
#include "common/parse.h"
#include "export/cuda_html.h"
#include "gpu/activity/activity.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kRowsOfPage = 60;

/// How well each context's event clock is known, as the recording says it.
std::vector<std::string> notes_of_clocks(const trace::Trace& trace) {
  constexpr std::string_view kKey = "kansoku.clock.cuda.",
                             kError = " error_ns=", kRestarts = " restarts=";
  const auto number = [](std::string_view text, std::string_view name) {
    const std::size_t at = text.find(name);
    if (at == std::string_view::npos) return std::optional<std::int64_t>();
    text.remove_prefix(at + name.size());
    return parse_int<std::int64_t>(text.substr(0, text.find(' ')));
  };
  std::vector<std::string> out;
  for (const auto& [key, value] : trace.metadata) {
    if (!std::string_view(key).starts_with(kKey)) continue;
    const auto error_ns = number(value, kError), restarts = number(value, kRestarts);
    if (!error_ns || !restarts || *restarts != 0) continue;
    out.push_back(fmt::format("device times of context {} are known to {:.1f} us",
                              std::string_view(key).substr(kKey.size()),
                              static_cast<double>(*error_ns) * 1e-3));
  }
  return out;
}

class CudaReport final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("files", files_,
                   "recordings of one job, or profiles of PyTorch or Nsight Systems")
        ->required();
    app.add_option("--top", top_, "rows of a table")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_option("--peak", peak_tflops_,
                   "the device's peak in TFLOP/s, to compare matrix products with")
        ->check(CLI::Range(1e-6, 1e6));
    app.add_flag("--json", json_, "print JSON (schema kansoku.cuda_report/1)");
    app.add_option("--html", html_, "also write an HTML page");
    app.add_flag("--force", force_, "overwrite a file of another kind");
    app.footer(
        "Examples:\n"
        "  kansoku cuda report run.pftrace\n"
        "  kansoku cuda report run.pftrace --html device.html\n"
        "  kansoku cuda report rank-0.pt.trace.json.gz --peak 312\n"
        "Exit status: 10 if there is a finding.");
  }

  int run() override {
    const auto page =
        check_output(html_, {.kind = FileKind::kPage, .force = force_, .inputs = files_});
    if (!page) return report(page.error());
    const auto status = print();
    return status ? *status : report(status.error());
  }

 private:
  Result<int> print() {
    TRY(const Sources sources, read_sources(files_));
    if (sources.kind == Sources::Kind::kDumps) {
      return Error{Code::kUnsupported, "cuda report: a Flight Recorder dump holds no device work",
                   "diagnose it: kansoku diagnose FILE"};
    }
    gpu::activity::Options options;
    options.peak_tflops = peak_tflops_;
    options.with_view = !html_.empty();
    if (sources.kind == Sources::Kind::kRecording) options.steps = steps_of_jobs(sources.trace);
    TRY(gpu::activity::WorkReport made, gpu::activity::report_of(sources.trace, options));
    made.notes.insert(made.notes.begin(), sources.notes.begin(), sources.notes.end());
    for (std::string& note : notes_of_clocks(sources.trace))
      made.notes.push_back(std::move(note));
    if (json_) {
      fmt::print("{}\n", gpu::activity::to_json(made, top_).dump(2));
    } else {
      fmt::print("{}", gpu::activity::to_text(made, top_));
    }
    if (!html_.empty()) TRY_VOID(write_page(made));
    return made.findings.empty() ? kExitOk : kExitFindings;
  }

  Result<void> write_page(const gpu::activity::WorkReport& made) const {
    const Json json = gpu::activity::to_json(made, std::max(top_, kRowsOfPage));
    TRY(const std::string html, exporter::cuda_html(json, gpu::activity::view_json(made)));
    TRY_VOID(sys::write_file(html_, html));
    if (!json_) fmt::print("report: {}\n", html_);
    return {};
  }

  std::vector<std::string> files_;
  std::string html_;
  std::size_t top_{10};
  std::optional<double> peak_tflops_;
  bool json_{false}, force_{false};
};

}  // namespace

std::unique_ptr<Command> make_cuda_report() {
  return std::make_unique<CudaReport>();
}

}  // namespace kansoku::cli
