// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/diagnose/analysis.h"
#include "cli/output_file.h"

namespace kansoku::cli {
namespace {

class Diagnose final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("file", files_,
                   "recording (.pftrace), traces of other profilers (one file per rank), Flight "
                   "Recorder dumps, or folders of these (docs/import.md)")
        ->required();
    app.add_flag("--json", json_,
                 "print JSON (schema kansoku.diagnosis/3, docs/formats/diagnosis.md)");
    app.add_option("--html", html_, "also write an HTML report");
    app.add_option("--baseline", baseline_, "also compare with this healthy run of the same job");
    app.add_option("--save-baseline", new_baseline_,
                   "save this run as a baseline; refused if it has findings");
    app.add_option("--window", source_options_.window,
                   "of a worker with several profiles: which one, from 1, the oldest [the newest]");
    app.add_flag("--force", force_, "overwrite files of another kind");
    app.add_option("--seed", seed_, "seed of the bootstrap")->capture_default_str();
    app.footer(
        "Exit status: 0 nothing found, 10 findings, 11 not enough data, 2 a file cannot be read as "
        "a trace.");
  }

  int run() override {
    std::vector<std::string> inputs = files_;
    inputs.push_back(baseline_);
    const auto page =
        check_output(html_, {.kind = FileKind::kPage, .force = force_, .inputs = inputs});
    if (!page) return report(page.error());
    const auto baseline = check_output(
        new_baseline_,
        {.kind = FileKind::kJson, .schema = "kansoku.baseline", .force = force_, .inputs = inputs});
    if (!baseline) return report(baseline.error());
    const auto analysis = analyse(files_, seed_, baseline_, source_options_);
    if (!analysis) return report(analysis.error());
    fmt::print("{}\n", json_ ? analysis->json.dump(2) : analysis->text);
    if (!html_.empty()) {
      if (const auto written = write_report(*analysis, html_); !written)
        return report(written.error());
      if (!json_) fmt::print("report: {}\n", html_);
    }
    if (!new_baseline_.empty()) {
      if (const auto written = write_baseline(*analysis, new_baseline_); !written)
        return report(written.error());
    }
    switch (analysis->diagnosis.verdict()) {
      case diagnose::Verdict::kFindings:
        return kExitFindings;
      case diagnose::Verdict::kNotEnoughData:
        return kExitNotEnoughData;
      case diagnose::Verdict::kNothingFound:
        break;
    }
    return kExitOk;
  }

 private:
  std::vector<std::string> files_;
  std::string html_, baseline_, new_baseline_;
  bool json_{false}, force_{false};
  std::uint64_t seed_{1};
  SourceOptions source_options_;
};

}  // namespace

std::unique_ptr<Command> make_diagnose() {
  return std::make_unique<Diagnose>();
}

}  // namespace kansoku::cli
