// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/simulate/simulate_files.h"
#include "cli/simulate/simulate_recording.h"
#include "cli/simulate/simulate_records.h"
#include "cli/simulate/simulate_replay.h"
#include "cli/simulate/simulate_run.h"
#include "cli/wiring.h"
#include "common/parse.h"
#include "export/simulation_html.h"
#include "simulate/import/import.h"
#include "simulate/summary.h"
#include "simulate/synthesize.h"
#include "simulate/workload/model.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

namespace sim = simulate;

constexpr std::int64_t kAssetsMax = 10'000'000;

class Simulate final : public Command {
 public:
  void declare(CLI::App& app) override {
    declare_run(app);
    declare_sweep(app);
    declare_replay(app);
    declare_fit(app);
    declare_synth(app);
    declare_report(app);
    app.require_subcommand(1);
    app.footer(
        "See docs/simulation.md and docs/formats/experiment.md; examples: examples/simulate.\n"
        "  kansoku simulate run examples/simulate/pipelines.toml -r 10\n"
        "  kansoku simulate replay philly.csv.gz --slots 620\n"
        "  kansoku simulate sweep e.toml --vary clusters.gpu.scheduler=fifo,backfill -r 20");
  }

  int run() override {
    const Result<int> status = (this->*what_)();
    return status ? *status : report(status.error());
  }

 private:
  void declare_common(CLI::App& app) {
    app.add_option("--set", set_,
                   "KEY=VALUE replaces a value of the file, e.g. clusters.gpu.slots=40")
        ->type_name("KEY=VALUE");
    app.add_option("-r,--replications", options_.replications,
                   "replications (default: as in the file)")
        ->check(CLI::Range(1, 100'000));
    app.add_option("-j,--jobs", options_.jobs,
                   "threads (default: one per core); the results are the same for any number")
        ->check(CLI::Range(1, 1024));
    app.add_flag("-q,--quiet", options_.quiet, "hide progress on standard error");
    app.add_flag("--skip-bad-rows", options_.skip_bad_rows,
                 "skip and count malformed rows of traces");
    app.add_flag("--json", json_, "print the summary as JSON");
    app.add_option("-o,--output", output_, "write the summary as JSON to a file");
    app.add_option("--html", html_, "write a self-contained HTML report");
  }

  void declare_records(CLI::App& app) {
    app.add_option("--records", records_,
                   "write one row per task, as Parquet if the name ends in .parquet, else as CSV");
    app.add_option("--trace", trace_, "write the first replication as a trace (.pftrace)");
    declare_force(app);
  }

  void declare_run(CLI::App& app) {
    CLI::App* const run = app.add_subcommand("run", "simulate an experiment");
    run->add_option("experiment", path_, "a TOML file")->required();
    declare_common(*run);
    declare_records(*run);
    run->callback([this] { what_ = &Simulate::run_experiment; });
  }

  void declare_sweep(CLI::App& app) {
    CLI::App* const sweep =
        app.add_subcommand("sweep", "simulate variants of an experiment, compared pair by pair");
    sweep->add_option("experiment", path_, "a TOML file")->required();
    sweep
        ->add_option(
            "--vary", vary_,
            "KEY=VALUE,VALUE,...; repeat the option to vary several keys (all combinations)")
        ->required()
        ->type_name("KEY=VALUES");
    sweep->add_option("--shard", shard_,
                      "I/N: simulate only every N-th variant, from number I (0..N-1)");
    declare_common(*sweep);
    sweep->callback([this] { what_ = &Simulate::sweep; });
    CLI::App* const merge =
        app.add_subcommand("merge", "join the parts of a sweep that ran in shards");
    merge->add_option("parts", parts_, "JSON files of `sweep -o`")->required();
    merge->add_flag("--json", json_, "print the joined sweep as JSON");
    merge->add_option("-o,--output", output_, "write the joined sweep as JSON to a file");
    merge->add_option("--html", html_, "write a self-contained HTML report");
    declare_force(*merge);
    merge->callback([this] { what_ = &Simulate::merge; });
  }

  void declare_replay(CLI::App& app) {
    CLI::App* const replay = app.add_subcommand(
        "replay", "replay a recorded trace on a cluster, or a task graph on its machine");
    declare_replay_options(*replay, replay_);
    declare_common(*replay);
    declare_records(*replay);
    replay->callback([this] { what_ = &Simulate::replay; });
  }

  void declare_fit(CLI::App& app) {
    CLI::App* const fit = app.add_subcommand("fit", "learn durations and arrivals from a trace");
    fit->add_option("trace", path_, "a trace (docs/formats/workload.md) or a recording")
        ->required();
    fit->add_option("--format", format_, "force the trace's format");
    fit->add_option(
        "--arrivals", arrivals_,
        "constant, renewal, hour_of_week_poisson, hour_of_week_renewal, sessions, day_blocks, "
        "replay [sessions; renewal if the trace does not say its hour of week]");
    fit->add_option("--session-gap", session_gap_, "gap between jobs that ends a session [120s]");
    fit->add_option("--from", from_, "skip jobs before this date or time: 2017-09-25, or 22d");
    fit->add_option("--seed", seed_, "seed of splits and subsamples [1]")
        ->check(CLI::Range(std::int64_t{0}, INT64_MAX));
    fit->add_flag("--skip-bad-rows", options_.skip_bad_rows, "skip and count malformed rows");
    fit->add_flag("--json", json_, "print the report of the fit as JSON");
    fit->add_option("-o,--output", output_, "write the model, for synth and experiments");
    fit->add_option("--html", html_, "write a self-contained HTML report");
    declare_force(*fit);
    fit->add_option("--experiment", experiment_,
                    "write an experiment with the phases of a recording (.pftrace) as tasks");
    fit->add_option("--assets", assets_,
                    "fit the sizes of data sets instead, from columns of a table: "
                    "rows=NAME,columns=NAME[,bytes=NAME]");
    fit->add_option("--components", components_, "with --assets: components of the mixture [8]")
        ->check(CLI::Range(1, 200));
    fit->callback([this] { what_ = assets_.empty() ? &Simulate::fit : &Simulate::fit_assets; });
  }

  void declare_synth(CLI::App& app) {
    CLI::App* const synth = app.add_subcommand("synth", "draw a trace from a fitted model");
    synth
        ->add_option("model", path_,
                     "model of `simulate fit -o`, of jobs or of assets, or an experiment (.toml) "
                     "for its pipelines")
        ->required();
    synth->add_option("--set", set_, "experiments: KEY=VALUE replaces a value of the file")
        ->type_name("KEY=VALUE");
    synth->add_option("--span", span_, "length of the trace [7d]");
    synth->add_option("--count", count_, "number of assets [1000]")
        ->check(CLI::Range(std::int64_t{1}, kAssetsMax));
    synth->add_option("--seed", seed_, "[1]")->check(CLI::Range(std::int64_t{0}, INT64_MAX));
    synth->add_option("--format", format_, "format of the trace [plain]");
    synth->add_option("-o,--output", output_, "output file [standard output]");
    declare_force(*synth);
    synth->callback([this] {
      is_text_output_ = true;
      what_ = &Simulate::synth;
    });
  }

  void declare_force(CLI::App& app) {
    app.add_flag("--force", force_, "overwrite a file of another kind");
  }

  void declare_report(CLI::App& app) {
    CLI::App* const html = app.add_subcommand("report", "make an HTML report from a JSON result");
    html->add_option("result", path_, "JSON of run, replay, sweep, merge or fit")->required();
    html->add_option("--html", html_, "output file [report.html]");
    declare_force(*html);
    html->callback([this] { what_ = &Simulate::report_file; });
  }

  [[nodiscard]] Result<sim::Overrides> overrides() const {
    sim::Overrides out;
    for (const std::string& text : set_) {
      const std::size_t equals = text.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
        return Error{Code::kCorrupt, "--set " + text + ": not KEY=VALUE",
                     "for example --set clusters.gpu.slots=40"};
      out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    return out;
  }

  [[nodiscard]] Result<sim::Experiment> experiment(const sim::Overrides& more) {
    TRY(const std::string text, read_text(path_));
    TRY(sim::Overrides all, overrides());
    all.insert(all.end(), more.begin(), more.end());
    if (!loader_) loader_.emplace(folder_of(path_), options_.skip_bad_rows);
    return sim::parse_experiment(text, path_, all, *loader_);
  }

  /// Prints and writes a result; kUnsupported if the report cannot show it.
  [[nodiscard]] Result<void> deliver(const Json& result) {
    if (json_) fmt::print("{}\n", result.dump(2));
    if (!output_.empty()) TRY_VOID(sys::write_file(output_, result.dump() + "\n"));
    if (!html_.empty()) {
      TRY(const std::string page, exporter::simulation_html(result));
      TRY_VOID(sys::write_file(html_, page));
      if (!json_) fmt::print("report: {}\n", html_);
    }
    return {};
  }

  /// Said before the work is done, not after it.
  [[nodiscard]] Result<void> check_outputs() const {
    const auto check = [this](const std::string& path, FileKind kind) {
      return check_output(path, {.kind = kind, .force = force_, .inputs = {path_}});
    };
    TRY_VOID(check(output_, is_text_output_ ? FileKind::kText : FileKind::kJson));
    TRY_VOID(check(html_, FileKind::kPage));
    const bool is_parquet = records_.ends_with(".parquet");
    TRY_VOID(check(records_, is_parquet ? FileKind::kTable : FileKind::kText));
    TRY_VOID(check(trace_, FileKind::kRecording));
    TRY_VOID(check(experiment_, FileKind::kText));
    return check_records_path(records_);
  }

  [[nodiscard]] Result<int> simulate_and_deliver(const sim::Experiment& experiment,
                                                 bool by_chance) {
    options_.records = !records_.empty();
    options_.trace = !trace_.empty();
    TRY(const auto replications, simulate_with_progress(experiment, options_, experiment.name));
    if (replications.finished.empty())
      return Error{Code::kTimeout, "simulate: stopped before the end of the first replication"};
    const Json summary = sim::summarize(experiment, replications);
    if (!json_) print_summary(summary, by_chance);
    TRY_VOID(deliver(summary));
    if (options_.records) TRY_VOID(write_simulation_records(records_, experiment, replications));
    if (options_.trace) TRY_VOID(write_simulation_trace(trace_, experiment, replications));
    return replications.stopped ? kExitTimeout : kExitOk;
  }

  [[nodiscard]] Result<int> run_experiment() {
    TRY_VOID(check_outputs());
    TRY(const auto loaded, experiment({}));
    return simulate_and_deliver(loaded, true);
  }

  [[nodiscard]] Result<int> replay() {
    TRY_VOID(check_outputs());
    FileLoader loader("", options_.skip_bad_rows);
    std::vector<sim::Workload> workloads;
    for (const std::string& path : replay_.paths) {
      TRY(auto workload, read_replayed(replay_, path, loader));
      workloads.push_back(std::move(workload));
    }
    if (!workloads.front().graphs.empty() || workloads.size() > 1) {
      if (!(output_ + html_ + records_ + trace_).empty() || !set_.empty() ||
          options_.replications > 0)
        return Error{Code::kUnsupported,
                     replay_.paths.front() + ": task graphs are replayed once, as recorded",
                     "use only --cores, --task-overhead and --json with them"};
      return replay_graphs(replay_, workloads, json_);
    }
    TRY(const sim::Overrides set, overrides());
    TRY(const auto made, replay_experiment(replay_, set, loader));
    return simulate_and_deliver(made, false);
  }

  [[nodiscard]] Result<std::pair<std::size_t, std::size_t>> shard() const {
    if (shard_.empty()) return std::pair<std::size_t, std::size_t>{0, 1};
    const std::size_t slash = shard_.find('/');
    const auto index = parse_int<std::size_t>(std::string_view(shard_).substr(0, slash));
    const auto count = slash == std::string::npos
                           ? std::nullopt
                           : parse_int<std::size_t>(std::string_view(shard_).substr(slash + 1));
    if (!index || !count || *index >= *count)
      return Error{Code::kCorrupt, "shard " + shard_ + ": not understood",
                   "give I/N with 0 <= I < N"};
    return std::pair{*index, *count};
  }

  [[nodiscard]] Result<int> sweep() {
    TRY_VOID(check_outputs());
    sim::SweepPart part;
    for (const std::string& text : vary_) {
      TRY(sim::Axis axis, sim::parse_axis(text));
      for (const sim::Axis& other : part.axes)
        if (other.key == axis.key)
          return Error{Code::kCorrupt, "--vary " + axis.key + ": given twice",
                       "give all its values in one --vary"};
      part.axes.push_back(std::move(axis));
    }
    TRY(const auto all, sim::variants(part.axes));
    TRY(const auto mine, shard());
    if (mine.first >= all.size())
      return Error{Code::kNotFound,
                   fmt::format("shard {}: there are only {} variants", shard_, all.size())};
    install_signal_counter();
    // A mistake in the last variant is told now, not after hours.
    for (std::size_t i = mine.first; i < all.size() && signal_count() == 0; i += mine.second)
      TRY_VOID(experiment(all[i]));
    bool stopped = signal_count() > 0;
    for (std::size_t i = mine.first; i < all.size() && !stopped; i += mine.second) {
      TRY(const auto variant, experiment(all[i]));
      part.name = variant.name;
      TRY(const auto replications,
          simulate_with_progress(variant, options_,
                                 fmt::format("variant {} of {}", i, all.size())));
      stopped = replications.stopped || signal_count() > 0;
      if (replications.stopped) break;  // half a variant cannot be compared
      part.indices.push_back(i);
      part.summaries.push_back(sim::summarize(variant, replications));
    }
    if (part.indices.empty())
      return Error{Code::kTimeout, "sweep: stopped before the end of the first variant"};
    const Json result = sim::sweep_json(part);
    if (!json_) print_comparisons(result);
    TRY_VOID(deliver(result));
    return stopped ? kExitTimeout : kExitOk;
  }

  [[nodiscard]] Result<int> merge() {
    TRY_VOID(check_outputs());
    std::vector<Json> parts;
    for (const std::string& path : parts_) {
      TRY(Json part, read_json(path));
      parts.push_back(std::move(part));
    }
    std::vector<std::size_t> missing;
    TRY(const Json whole, sim::merge_sweeps(parts, missing));
    if (!json_) print_comparisons(whole);
    TRY_VOID(deliver(whole));
    if (missing.empty()) return kExitOk;
    fmt::print(stderr, "kansoku: merge: {} variants are missing: {}\n", missing.size(),
               fmt::join(missing.begin(),
                         missing.begin() +
                             static_cast<std::ptrdiff_t>(std::min<std::size_t>(missing.size(), 20)),
                         ", "));
    return kExitBadInput;
  }

  [[nodiscard]] Result<int> fit() {
    TRY_VOID(check_outputs());
    FileLoader loader("", options_.skip_bad_rows);
    if (!format_.empty()) {
      const auto forced = sim::import::format_from_name(format_);
      if (!forced) return Error{Code::kNotFound, "format \"" + format_ + "\": unknown"};
      loader.force_format(*forced);
    }
    TRY(sim::Workload workload, loader.workload(path_));
    if (!from_.empty()) {
      TRY(const Nanos from, sim::offset_of(workload, from_));
      std::erase_if(workload.jobs, [&](const sim::Job& job) { return job.submit < from; });
    }
    sim::WorkloadFitOptions options;
    if (arrivals_.empty()) arrivals_ = workload.epoch_in_week_s >= 0 ? "sessions" : "renewal";
    const auto kind = sim::kind_from_name(arrivals_);
    if (!kind) return Error{Code::kNotFound, "arrivals \"" + arrivals_ + "\": unknown"};
    options.arrivals = *kind;
    options.seed = seed_;
    const auto gap = sim::parse_span(session_gap_);
    if (!gap) return Error{Code::kCorrupt, "--session-gap " + session_gap_ + ": not a duration"};
    options.arrival.session_gap_s = static_cast<double>(gap->count()) / 1e9;
    if (!experiment_.empty()) TRY_VOID(write_recorded_experiment(path_, experiment_, json_));
    TRY(const auto fitted, sim::fit_workload(workload, options));
    if (!json_) print_fit(fitted.report);
    if (!output_.empty()) TRY_VOID(sys::write_file(output_, fitted.model.to_json().dump() + "\n"));
    output_.clear();  // the model went there, not the report
    TRY_VOID(deliver(fitted.report));
    return kExitOk;
  }

  [[nodiscard]] Result<int> fit_assets() {
    TRY_VOID(check_outputs());
    sim::import::AssetColumns columns;
    TRY(const sim::Axis parts, sim::parse_axis("assets=" + assets_));
    for (const std::string& part : parts.values) {
      const std::size_t equals = part.find('=');
      const std::string key = part.substr(0, equals);
      const std::string name = equals == std::string::npos ? "" : part.substr(equals + 1);
      if (name.empty() || (key != "rows" && key != "columns" && key != "bytes"))
        return Error{Code::kCorrupt, "--assets " + assets_ + ": not understood",
                     "rows=NAME,columns=NAME[,bytes=NAME]"};
      (key == "rows" ? columns.rows : key == "columns" ? columns.columns : columns.bytes) = name;
    }
    TRY(const std::string text, read_text(path_));
    sim::import::ImportOptions options;
    options.skip_bad_rows = options_.skip_bad_rows;
    TRY(const auto sizes, sim::import::import_assets(text, path_, columns, options));
    TRY(const auto model, sim::fit_assets(sizes, components_, seed_));
    const Json fitted = sim::asset_report(model, sizes, seed_);
    if (!json_) print_asset_fit(fitted);
    if (!output_.empty()) TRY_VOID(sys::write_file(output_, model.to_json().dump() + "\n"));
    if (json_) fmt::print("{}\n", fitted.dump(2));
    return kExitOk;
  }

  [[nodiscard]] Result<std::string> synthesized_pipelines() {
    TRY(const auto loaded, experiment({}));
    TRY(const sim::Workload drawn, sim::synthesize_pipelines(loaded));
    const auto format = sim::import::format_from_name(format_.empty() ? "plain" : format_);
    if (!format) return Error{Code::kNotFound, "format \"" + format_ + "\": unknown"};
    return sim::import::export_workload(*format, drawn);
  }

  [[nodiscard]] Result<std::string> synthesized() {
    if (path_.ends_with(".toml")) return synthesized_pipelines();
    TRY(const Json json, read_json(path_));
    std::string text;
    if (json.at("schema").as_string() == "kansoku.asset_model/1") {
      TRY(const auto model, sim::AssetModel::from_json(json));
      text = "rows,columns,bytes\n";
      for (const sim::Asset& asset : sim::synthesize_assets(model, count_, seed_))
        text += fmt::format("{:.0f},{:.0f},{:.0f}\n", std::ceil(asset.rows),
                            std::ceil(asset.columns), std::ceil(asset.bytes));
    } else {
      TRY(const auto model, sim::WorkloadModel::from_json(json));
      const auto span = sim::parse_span(span_);
      if (!span) return Error{Code::kCorrupt, "--span " + span_ + ": not a duration"};
      const auto format = sim::import::format_from_name(format_.empty() ? "plain" : format_);
      if (!format) return Error{Code::kNotFound, "format \"" + format_ + "\": unknown"};
      const sim::Workload drawn = sim::synthesize(model, *span, seed_);
      TRY(text, sim::import::export_workload(*format, drawn));
      for (const std::string& note : drawn.bad_row_notes)
        fmt::print(stderr, "kansoku: synth: {}\n", note);
    }
    return text;
  }

  [[nodiscard]] Result<int> synth() {
    TRY_VOID(check_outputs());
    TRY(const std::string text, synthesized());
    if (output_.empty()) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      return kExitOk;
    }
    TRY_VOID(sys::write_file(output_, text));
    return kExitOk;
  }

  [[nodiscard]] Result<int> report_file() {
    TRY(const Json result, read_json(path_));
    if (html_.empty()) html_ = "report.html";
    TRY_VOID(check_outputs());
    TRY_VOID(deliver(result));
    return kExitOk;
  }

  Result<int> (Simulate::*what_)(){nullptr};
  bool force_{false}, is_text_output_{false};
  std::string path_, output_, html_, records_, trace_, experiment_, shard_, format_, from_;
  std::string arrivals_, session_gap_{"120s"}, span_{"7d"};
  std::vector<std::string> set_, vary_, parts_;
  std::uint64_t seed_{1};
  std::string assets_;
  int components_{8};
  std::size_t count_{1000};
  bool json_{false};
  std::optional<FileLoader> loader_;  // of the experiment: variants share the traces it has read
  SimulationOptions options_;
  ReplayOptions replay_;
};

}  // namespace

std::unique_ptr<Command> make_simulate() {
  return std::make_unique<Simulate>();
}

}  // namespace kansoku::cli
