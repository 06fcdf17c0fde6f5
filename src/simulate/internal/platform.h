// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/event.h"
#include "simulate/des/resource.h"
#include "simulate/experiment.h"
#include "simulate/internal/cluster.h"
#include "simulate/internal/fleet.h"
#include "simulate/internal/level.h"
#include "simulate/records.h"
#include "simulate/run.h"
#include "stats/sketch.h"

namespace kansoku::simulate {

/// One run of a pipeline; recycled.
struct PipelineRun {
  std::uint64_t random_index{0};  // of all its draws
  std::uint32_t number{0};
  std::uint32_t pipeline{0};
  std::uint32_t tasks_left{0};
  bool stopped{false};  // failed or refused: the rest is not executed
  TaskEnd end{TaskEnd::kDone};
  Nanos arrived{0};
  double asset_bytes{0};
  double unit_seconds{0};
  const Job* job{nullptr};
  DeployedModel* model{nullptr};  // that it renews
  Made* made{nullptr};
  des::Event* ended{nullptr};
  ModelMetrics metrics;
  double measured{0};
  bool evaluated{false}, deployed{false};
  std::vector<std::uint32_t> parents_left;  // empty for chains
};

/// Everything of one replication: the clusters, stores and pipelines of an experiment, its deployed
/// models, and the figures.
class Platform final : public Retrainer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Platform>> make(const Experiment& experiment,
                                                              int index, const RunOptions& options);
  ~Platform() override;

  /// Runs to the horizon (and on until all is done, if the experiment drains). kInternal is a
  /// broken invariant, kTimeout the caller's wish to stop.
  [[nodiscard]] Result<void> run(RunControl& control);
  [[nodiscard]] Replication report();

  void start_retraining(DeployedModel& model, std::uint32_t pipeline, Made& made,
                        des::Event& ended) override;
  [[nodiscard]] std::pair<double, double> expected_run(std::uint32_t pipeline) const override;

  /// Makes one run vanish, so that a test sees the invariants speak.
  void lose_a_run_for_test() { --runs_in_system_; }

 private:
  struct Attempts;
  struct Task;
  struct Pipeline;
  struct Storage;

  Platform(const Experiment& experiment, int index, const RunOptions& options);
  [[nodiscard]] Result<void> build();
  [[nodiscard]] Result<void> build_pipeline(const PipelineSpec& spec);

  des::Process arrive(des::Environment& env, std::uint32_t pipeline);
  des::Process work(des::Environment& env, PipelineRun& run, std::uint32_t task);
  [[nodiscard]] static bool skips(const PipelineRun& run, const Task& task,
                                  const RandomBlocks::Block& block);
  [[nodiscard]] static double bytes_to_read(const PipelineRun& run, const Task& task);
  [[nodiscard]] static bool take_setback(PipelineRun& run, const Claim& claim,
                                         const ClusterSpec& cluster, double done_s,
                                         Attempts& attempts);
  [[nodiscard]] std::uint32_t follow(PipelineRun& run, std::uint32_t index);
  PipelineRun& new_run(std::uint32_t pipeline, std::uint64_t random_index);
  void begin(PipelineRun& run);
  void finish(PipelineRun& run);
  [[nodiscard]] Demand demand_of(const PipelineRun& run, const Pipeline& pipeline,
                                 const Task& task) const;
  [[nodiscard]] double duration_of(const PipelineRun& run, const Task& task,
                                   const RandomBlocks::Block& block) const;
  void apply_effects(PipelineRun& run, const Task& task, const RandomBlocks::Block& block);
  void note(const PipelineRun& run, std::uint32_t task, const TaskRecord& record, Task& statistics);
  [[nodiscard]] Result<void> check_invariants();
  void report_pipelines(Replication& out);
  void report_clusters(Replication& out);

  const Experiment& experiment_;
  RunOptions options_;
  int index_;
  std::uint64_t seed_;
  des::Environment env_;
  Breaches breaches_{env_};
  std::vector<placement::TypicalPod> typical_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<std::unique_ptr<Storage>> stores_;
  std::vector<std::unique_ptr<Pipeline>> pipelines_;
  std::unique_ptr<Fleet> fleet_;
  std::vector<std::unique_ptr<PipelineRun>> all_runs_;
  std::vector<PipelineRun*> free_runs_;
  std::shared_ptr<Records> records_;
  std::uint32_t run_count_{0};
  // Little's law: the integral of runs in the system is the sum of their sojourns, exactly.
  std::int64_t runs_in_system_{0};
  des::TimeIntegral in_system_;
  des::Wide sojourns_{0}, arrivals_sum_{0};
};

}  // namespace kansoku::simulate
