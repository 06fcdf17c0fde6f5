// SPDX-License-Identifier: Apache-2.0
// A year of examples/simulate/pipelines.toml on the whole platform, from the file to the figures.
#include "simulate_platform.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "bench_util.h"
#include "simulate/run.h"

namespace kansoku::bench {
namespace {

/// The experiment names no other file.
class NoFiles final : public simulate::Loader {
 public:
  [[nodiscard]] Result<simulate::Workload> workload(const std::string& path) override {
    return Error{Code::kNotFound, path};
  }
  [[nodiscard]] Result<std::vector<simulate::NodeSpec>> nodes(const std::string& path) override {
    return Error{Code::kNotFound, path};
  }
  [[nodiscard]] Result<Json> json(const std::string& path) override {
    return Error{Code::kNotFound, path};
  }
};

}  // namespace

Result<void> platform_year(int rounds, double share, double (*processor_seconds)()) {
  std::ifstream file(KANSOKU_SOURCE_DIR "/examples/simulate/pipelines.toml");
  std::stringstream text;
  text << file.rdbuf();
  NoFiles loader;
  const int days = std::max(1, static_cast<int>(365 * share));
  TRY(const auto experiment,
      simulate::parse_experiment(text.str(), "pipelines.toml",
                                 {{"horizon", fmt::format("\"{}d\"", days)}}, loader));
  std::vector<double> seconds[2];
  double pipelines = 0;
  std::uint64_t records = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const bool with_records : {false, true}) {
      simulate::RunControl control;
      simulate::RunOptions options;
      options.records = with_records;
      const double begin = processor_seconds();
      TRY(const auto run, simulate::run_replication(experiment, round, options, control));
      seconds[with_records ? 1 : 0].push_back(processor_seconds() - begin);
      for (const simulate::Metric& metric : run.metrics)
        if (metric.name == "pipeline.build.arrived") pipelines = metric.value;
      if (run.records) records = run.records->size();
    }
  }
  const double bare = stats::median(seconds[0]), recorded = stats::median(seconds[1]);
  fmt::print(
      "bench simulate/platform days={} pipelines={:.0f} records={} seconds_with_records={:.3f} "
      "seconds={:.3f} pipelines_per_s_with_records={:.0f} pipelines_per_s={:.0f} rounds={}\n",
      days, pipelines, records, recorded, bare, pipelines / recorded, pipelines / bare, rounds);
  return {};
}

}  // namespace kansoku::bench
