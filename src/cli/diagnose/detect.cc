// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/diagnose/detect_input.h"
#include "cli/diagnose/detect_replay.h"
#include "cli/output_file.h"
#include "cli/simulate/simulate_files.h"
#include "common/parse.h"
#include "detect/job_model.h"
#include "detect/run_score.h"
#include "detect/table.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

/// A table with its columns and its rows step by step.
struct FittedRun {
  detect::Table table;
  detect::Cube cube;
};

Result<FittedRun> read_run(const std::string& path, const detect::TableOptions& options) {
  TRY(const std::string text, read_table_text(path));
  FittedRun run;
  TRY(run.table, detect::read_table(text, path, options));
  TRY(run.cube, detect::make_cube(run.table));
  for (const std::string& name : run.table.dropped)
    fmt::print(stderr, "kansoku: {}: column \"{}\" holds no numbers: skipped\n", path, name);
  if (run.table.bad_cells > 0) {
    fmt::print(stderr, "kansoku: {}: {} cells are not numbers; they count as missing\n", path,
               run.table.bad_cells);
  }
  return run;
}

/// "50:100" as two numbers.
std::optional<std::pair<double, double>> parse_steps(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto begin = parse_int<std::int64_t>(text.substr(0, colon));
  const auto end = parse_int<std::int64_t>(text.substr(colon + 1));
  if (!begin || !end || *begin >= *end) return std::nullopt;
  return std::pair{static_cast<double>(*begin), static_cast<double>(*end)};
}

class Detect final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.require_subcommand(1);
    fit_ = app.add_subcommand("fit", "learn normal behaviour from a healthy run");
    fit_->add_option("-o,--output", output_, "the model")->required();
    fit_->add_flag("--force", force_, "overwrite a file of another kind");
    fit_->add_option("--merge", merged_, "older model of the same job to merge with the new one");
    fit_->add_option("--flag-rate", model_options_.flag_rate,
                     "share of healthy points that may be flagged")
        ->check(CLI::Range(1e-6, 0.2))
        ->capture_default_str();
    score_ = app.add_subcommand("score",
                                "score a run: is the job slower than before, does a rank differ "
                                "from its peers, do the steps fit the model");
    score_->add_option("--model", model_, "model from `kansoku detect fit`");
    score_->add_option("--reference-steps", reference_,
                       "steps of this run that count as its healthy past: A:B");
    score_->add_flag("--json", json_, "print JSON (schema kansoku.detect_score/1)");
    score_->add_flag("--explain", explain_, "also print the features behind each incident");
    declare_replay(*app.add_subcommand(
        "replay", "run the always-on detector over windows that `kansoku watch` recorded"));
    for (CLI::App* sub : {fit_, score_})
      declare_table(*sub);
    app.footer("Exit status: 0 nothing found, 10 something was found, 2 bad input.");
  }

  int run() override {
    model_options_.window_steps = run_options_.window_steps;
    const auto done = fit_->parsed() ? fit() : replay_->parsed() ? replay() : score();
    return done ? *done : report(done.error());
  }

 private:
  void declare_table(CLI::App& sub) {
    sub.add_option(
           "file", file_,
           "CSV (plain, gzip, or - for standard input) or Parquet, with a header and one row per "
           "step and rank; or a recording, or a folder with the recordings of a job's hosts")
        ->required();
    sub.add_option("--columns", table_.columns, "columns of values (default: all)")->delimiter(',');
    sub.add_option("--rank-column", table_.rank_column, "column of the ranks (default: rank)");
    sub.add_option("--time-column", table_.time_column,
                   "column of steps or times (default: step, time, time_s or ts)");
    sub.add_option("--config", table_.config, "use only rows with this value in column \"config\"");
    sub.add_option("--job", table_.job, "use only rows with this value in column \"job\"");
    sub.add_option("--window", run_options_.window_steps, "steps per window")
        ->check(CLI::Range(4, 100000))
        ->capture_default_str();
    sub.add_option("--seed", run_options_.seed, "seed of the fit")->capture_default_str();
  }

  void declare_replay(CLI::App& sub) {
    replay_ = &sub;
    sub.add_option("file", replay_options_.path,
                   "file of `kansoku watch --features`; - for standard input")
        ->required();
    sub.add_option("--job", replay_options_.table.job, "replay only this job of the file");
    sub.add_option("--model", replay_options_.model, "stored model to start with");
    sub.add_option("--save", replay_options_.save, "store the model here at the end");
    sub.add_option("--learn", learn_, "learning time without a model")->capture_default_str();
    sub.add_option("--window", window_,
                   "length of a window, the same as in `kansoku watch --window`")
        ->capture_default_str();
    sub.add_option("--alarms", replay_options_.alarms_per_day, "target for false alarms a day")
        ->check(CLI::Range(1e-3, 1000.0))
        ->capture_default_str();
    sub.add_option("--seed", replay_options_.seed, "seed of the fit")->capture_default_str();
    sub.add_flag("--json", replay_options_.json,
                 "print a JSON line when an incident begins, changes or ends, and one at the end "
                 "(kansoku.watch_replay/1)");
  }

  Result<int> replay() {
    const auto window = parse_duration(window_);
    if (!window || window->count() <= 0)
      return Error{Code::kUnsupported, fmt::format("read --window {}: not a time", window_)};
    replay_options_.window = *window;
    const auto learn = parse_duration(learn_);
    if (!learn || *learn < 40 * *window) {
      return Error{Code::kUnsupported,
                   fmt::format("read --learn {}: not a time of at least 40 windows", learn_)};
    }
    replay_options_.learn_time = *learn;
    TRY(const std::size_t count, replay_windows(replay_options_));
    return count == 0 ? kExitOk : kExitFindings;
  }

  Result<int> fit() {
    TRY_VOID(check_output(output_, {.kind = FileKind::kJson,
                                    .schema = "kansoku.job_model",
                                    .force = force_,
                                    .inputs = {file_}}));
    TRY(const FittedRun run, read_run(file_, table_));
    model_options_.seed = run_options_.seed;
    detect::JobModel::Key key;
    key.world_size = static_cast<std::int32_t>(run.cube.ranks.size());
    TRY(auto model, detect::JobModel::fit(run.cube, run.table.columns, model_options_, key));
    if (!merged_.empty()) {
      TRY(const std::string text, read_text(merged_));
      TRY(const auto older, detect::JobModel::from_text(text));
      TRY(model, detect::JobModel::merge(older, model, run_options_.seed));
    }
    TRY_VOID(sys::write_file(output_, model.to_text()));
    const auto& parts = model.parts();
    fmt::print(
        "model of {} steps of {} ranks: {} features, {} modes; flags {:.2f} % of held-out "
        "points (asked for {:.2f} %)\n",
        run.cube.steps(), run.cube.ranks.size(), parts.coordinates.size(),
        parts.mixture.components(),
        100 * parts.measured_flags / std::max(1.0, parts.measured_points), 100 * parts.flag_rate);
    return kExitOk;
  }

  Result<int> score() {
    if (!reference_.empty()) {
      const auto steps = parse_steps(reference_);
      if (!steps) {
        return Error{Code::kCorrupt, fmt::format("--reference-steps \"{}\": not A:B", reference_),
                     "for example --reference-steps 50:100"};
      }
      run_options_.reference_begin = steps->first;
      run_options_.reference_end = steps->second;
    }
    TRY(const FittedRun run, read_run(file_, table_));
    std::optional<detect::JobModel> model;
    if (!model_.empty()) {
      TRY(const std::string text, read_text(model_));
      TRY(model, detect::JobModel::from_text(text));
    }
    TRY(const auto verdict,
        detect::score_run(run.cube, run.table.columns, model ? &*model : nullptr, run_options_));
    fmt::print("{}\n", json_ ? verdict.to_json().dump(2) : verdict.to_text());
    if (explain_ && !json_) explain(verdict);
    return verdict.incidents.empty() ? kExitOk : kExitFindings;
  }

  static void explain(const detect::RunVerdict& verdict) {
    for (const detect::RunIncident& incident : verdict.incidents) {
      fmt::print("\n{:<28} {:>12} {:>12} {:>7}\n", fmt::format("from {:.10g}", incident.begin),
                 "normal", "seen", "share");
      for (const trace::Evidence& one : incident.evidence) {
        fmt::print("  {:<26} {:>12} {:>12} {:>5.0f} %\n", one.feature,
                   detect::format_value(one.normal, one.unit),
                   detect::format_value(one.seen, one.unit), 100 * one.share);
      }
    }
  }

  CLI::App* fit_{nullptr};
  CLI::App* score_{nullptr};
  CLI::App* replay_{nullptr};
  WindowReplayOptions replay_options_;
  std::string learn_{"5m"}, window_{"1s"};
  bool force_{false};
  std::string file_, output_, merged_, model_, reference_;
  detect::TableOptions table_;
  detect::ModelOptions model_options_;
  detect::RunOptions run_options_;
  bool json_{false}, explain_{false};
};

}  // namespace

std::unique_ptr<Command> make_detect() {
  return std::make_unique<Detect>();
}

}  // namespace kansoku::cli
