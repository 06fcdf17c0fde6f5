// SPDX-License-Identifier: Apache-2.0
#include "diff/diff.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/diagnose/sources.h"
#include "cli/output_file.h"
#include "export/diff_html.h"
#include "infer/figures.h"
#include "infer/findings.h"
#include "infer/report.h"
#include "infer/run.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kRecordingsMax = 64;  // both sides together
constexpr std::size_t kOperatorRows = 20;   // of models in inference

/// The files of one side, each a recording of its own.
Result<void> read_side(const std::vector<std::string>& paths, std::vector<Sources>& sources) {
  for (const std::string& path : paths) {
    TRY(auto source, read_sources({path}));
    if (source.kind == Sources::Kind::kDumps)
      return Error{Code::kUnsupported, fmt::format("{}: a Flight Recorder dump has no steps", path),
                   "give recordings or traces of profilers"};
    for (const std::string& note : source.notes)
      fmt::print(stderr, "kansoku: {}: {}\n", path, note);
    sources.push_back(std::move(source));
  }
  return {};
}

class Diff final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("file", files_,
                   "two recordings: before and after a change; a folder is one recording of "
                   "several ranks (docs/import.md)");
    app.add_option("--base", base_, "a recording before the change (repeatable)");
    app.add_option("--new", new_, "a recording after it (repeatable)");
    app.add_option("--step", options_.step_name,
                   "each slice of this name begins a step; numbers as '#', e.g. 'iteration #'");
    app.add_flag("--json", json_, "print JSON (schema kansoku.diff/1, docs/formats/diff.md)");
    app.add_option("--html", html_, "also write an HTML report");
    app.add_flag("--force", force_, "overwrite a file of another kind");
    app.add_option("--seed", options_.seed, "seed of the bootstrap")->capture_default_str();
    app.footer(
        "Several recordings a side show how far equal runs differ; with one a side it is taken "
        "from thresholds.\n"
        "Examples:\n"
        "  kansoku diff before.pftrace after.pftrace --html diff.html\n"
        "  kansoku diff --base a1.pftrace --base a2.pftrace --new b1.pftrace --new b2.pftrace\n"
        "Exit status: 0 nothing significant, 10 changes, 11 not enough data, 2 a file cannot be "
        "read as a trace.");
  }

  int run() override {
    if (const auto sides = sort_files(); !sides) return report(sides.error());
    std::vector<std::string> inputs = base_;
    inputs.insert(inputs.end(), new_.begin(), new_.end());
    const auto page =
        check_output(html_, {.kind = FileKind::kPage, .force = force_, .inputs = inputs});
    if (!page) return report(page.error());
    std::vector<Sources> sources;
    for (const auto* const side : {&base_, &new_})
      if (const auto read = read_side(*side, sources); !read) return report(read.error());
    const auto comparison = compare(sources);
    if (!comparison) return report(comparison.error());
    if (!comparison->missing.empty()) {
      if (const auto status = compare_models(sources)) return *status;
    }
    const Json json = diff::to_json(*comparison);
    fmt::print("{}\n", json_ ? json.dump(2) : diff::to_text(*comparison));
    if (!html_.empty()) {
      const auto html = exporter::diff_html(json);
      if (!html) return report(html.error());
      if (const auto written = sys::write_file(html_, *html); !written)
        return report(written.error());
      if (!json_) fmt::print("report: {}\n", html_);
    }
    if (!comparison->missing.empty()) return kExitNotEnoughData;
    return comparison->has_findings() ? kExitFindings : kExitOk;
  }

 private:
  Result<void> sort_files() {
    const bool is_named = !base_.empty() || !new_.empty();
    if (is_named == !files_.empty() || (!is_named && files_.size() != 2) ||
        base_.empty() != new_.empty()) {
      return Error{Code::kUnsupported,
                   "diff: give two files, or recordings with --base and with --new",
                   "kansoku diff BEFORE AFTER"};
    }
    if (!is_named) {
      base_ = {files_[0]};
      new_ = {files_[1]};
    }
    if (base_.size() + new_.size() > kRecordingsMax)
      return Error{Code::kLimit, fmt::format("diff: more than {} recordings", kRecordingsMax)};
    return {};
  }

  /// Recordings of a model in inference have no steps, but operators; nothing: they are none, or
  /// several a side.
  [[nodiscard]] std::optional<int> compare_models(const std::vector<Sources>& sources) const {
    if (sources.size() != 2) return std::nullopt;
    const infer::Run run = infer::read_run(sources[1].trace);
    const infer::Report before = infer::make_report(infer::read_run(sources[0].trace));
    const infer::Report after = infer::make_report(run);
    infer::Verdict verdict;
    verdict.comparison = infer::compare(before, after);
    if (verdict.comparison->operators.empty()) return std::nullopt;
    verdict.findings = verdict.comparison->findings;
    if (json_)
      fmt::print("{}\n", infer::to_json(after, {}, verdict).dump(2));
    else
      fmt::print("{}", infer::comparison_text(verdict, {.rows = kOperatorRows}));
    if (!html_.empty())
      fmt::print(stderr,
                 "kansoku: no page was written: kansoku llm report {} --base {} --html {}\n",
                 new_[0], base_[0], html_);
    return verdict.findings.empty() ? kExitOk : kExitFindings;
  }

  Result<diff::Comparison> compare(const std::vector<Sources>& sources) const {
    std::vector<diff::Input> inputs;
    for (std::size_t i = 0; i < sources.size(); ++i)
      inputs.push_back({i < base_.size() ? base_[i] : new_[i - base_.size()], &sources[i].trace});
    const std::span<const diff::Input> all = inputs;
    return diff::compare(all.subspan(0, base_.size()), all.subspan(base_.size()), options_);
  }

  std::vector<std::string> files_, base_, new_;
  std::string html_;
  bool json_{false}, force_{false};
  diff::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_diff() {
  return std::make_unique<Diff>();
}

}  // namespace kansoku::cli
