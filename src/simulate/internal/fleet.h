// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "simulate/des/engine.h"
#include "simulate/des/event.h"
#include "simulate/experiment.h"
#include "simulate/internal/drift.h"
#include "simulate/run.h"

namespace kansoku::simulate {

/// Result of a pipeline run on a model.
struct Made {
  ModelMetrics metrics;
  double measured{0};  // performance as evaluated, with noise
  bool evaluated{false};
  bool deployed{false};  // reached its deploy task, or its end if it has none
  double unit_hours{0};  // that the run held
};

/// One deployed model.
struct DeployedModel {
  explicit DeployedModel(Drift its_drift) : drift(std::move(its_drift)) {}
  std::uint32_t family{0}, index{0};
  Drift drift;
  ModelMetrics metrics;                     // performance: at the time of its training
  double trained_s{0}, first_trained_s{0};  // negative: before the simulation
  std::optional<std::pair<ModelMetrics, double>> previous;  // and when it was trained
  double accounted_s{0};                                    // up to where the sums below go
  double performance_seconds{0}, loss_seconds{0};
  double unit_hours{0};
  std::uint32_t retrainings{0}, promoted{0}, refused{0}, rolled_back{0};
  std::uint64_t runs_started{0};  // also before the warm-up
  std::vector<double> plan;       // kOracle: when to start retraining

  [[nodiscard]] double loss(double now_s) const { return drift.loss(trained_s, now_s); }
  [[nodiscard]] double performance(double now_s) const {
    const double left = metrics.performance - loss(now_s);
    return left > 0 ? left : 0;
  }
};

/// Starts the pipeline that renews a model; implemented by the platform.
class Retrainer {
 public:
  virtual ~Retrainer() = default;
  /// Starts a run of the family's pipeline. `ended` is triggered at its end, after `made` was
  /// filled; both outlive the run.
  virtual void start_retraining(DeployedModel& model, std::uint32_t pipeline, Made& made,
                                des::Event& ended) = 0;
  /// Expected seconds of the pipeline without waiting, and the unit hours it holds.
  [[nodiscard]] virtual std::pair<double, double> expected_run(std::uint32_t pipeline) const = 0;
};

/// The run-time view: deployed models that drift, and the triggers that renew them.
class Fleet {
 public:
  Fleet(des::Environment& env, const Experiment& experiment, std::uint64_t seed,
        Retrainer& retrainer);

  /// Starts the life of every model.
  void start();
  /// Appends figures and series; `now` is the end of the run.
  void report(Nanos now, int points, std::vector<Metric>& metrics, std::vector<Series>& series);

 private:
  struct Sample {
    double when_s{0}, performance{0};
  };
  des::Process live(des::Environment& env, DeployedModel& model);
  [[nodiscard]] double due(const DeployedModel& model, double now_s) const;
  [[nodiscard]] std::vector<double> oracle_times(const DeployedModel& model) const;
  [[nodiscard]] std::vector<double> plan_oracle(const DeployedModel& model) const;
  void account(DeployedModel& model, double now_s);
  void adopt(DeployedModel& model, const Made& made, double data_s, double now_s);
  [[nodiscard]] double cost_of_retraining(const ModelsSpec& spec) const;

  des::Environment& env_;
  const Experiment& experiment_;
  Retrainer& retrainer_;
  double warmup_s_, horizon_s_;
  std::vector<std::unique_ptr<DeployedModel>> models_;
  std::vector<std::vector<double>> performance_;  // per family: sum over models of spans' means
};

}  // namespace kansoku::simulate
