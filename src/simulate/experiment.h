// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "common/time.h"
#include "simulate/placement/pool.h"
#include "simulate/workload/arrivals.h"
#include "simulate/workload/workload.h"
#include "stats/distribution.h"

namespace kansoku::simulate {

/// Loss of work of a task that is preempted or whose node fails.
enum class LostWork : std::uint8_t { kAll, kNone, kSinceCheckpoint };

/// Slots, or nodes with CPUs, memory and GPUs.
struct ClusterSpec {
  std::string name;
  std::int64_t slots{0};  // > 0: a pool of equal slots, no nodes
  std::vector<NodeSpec> nodes;
  std::vector<double> speeds;           // of each node; 1 = the reference
  std::vector<std::string> gpu_models;  // index = placement::Node::gpu_model
  std::string scheduler{"fifo"};
  std::string placement{"first_fit"};
  bool preemptive{false};  // a better priority takes from worse ones
  LostWork lost_work{LostWork::kAll};
  double checkpoint_s{0};                      // kSinceCheckpoint
  double mtbf_s{0}, mttr_s{0};                 // of each node; mtbf 0: never fails
  int retries_max{3};                          // after node failures; preemptions do not count
  std::map<std::string, std::int64_t> quotas;  // units by virtual cluster (pipeline group)
  double cost_per_unit_hour{0};                // of capacity, used or not
  /// Units are slots, or GPU milli (with nodes that have GPUs), or CPU milli.
  [[nodiscard]] bool counts_gpus() const;
};

/// Store of assets. Transfers take bytes / bandwidth; beyond `streams` at once they queue.
struct StoreSpec {
  std::string name;
  double read_bytes_per_s{0}, write_bytes_per_s{0};
  std::int64_t streams{0};  // 0: no limit
};

enum class TaskKind : std::uint8_t {
  kCustom,
  kPreprocess,
  kTrain,     // sets the metrics of the model that the pipeline makes
  kEvaluate,  // measures its performance; stops the pipeline if the gate refuses it
  kCompress,  // changes size, inference time and performance by a table over the pruned share
  kHarden,    // raises robustness, costs performance
  kDeploy,    // makes it the deployed model
};

/// Metrics of a model, all >= 0: shares of 1, except size and time.
struct ModelMetrics {
  double performance{0};
  double robustness{0};
  double fairness{0};
  double size_bytes{0};
  double inference_s{0};
};

/// One row of a compression table: effect of pruning a share.
struct CompressionRow {
  double pruned{0}, performance{0} /* added */, size{1}, inference{1} /* factors */;
};

struct TaskSpec {
  std::string name;
  TaskKind kind{TaskKind::kCustom};
  std::uint32_t cluster{0};
  std::vector<std::uint32_t> after;  // indices of the tasks that come before; acyclic
  double probability{1};
  /// Seconds. With `curve`: a * b^ln(asset bytes) + c, plus a draw of `duration` as noise.
  stats::Distribution duration;
  bool has_curve{false};
  double curve_a{0}, curve_b{1}, curve_c{0};
  std::int32_t pods{1};  // a gang: all start together
  std::int64_t slots{1};
  placement::Request pod;  // with nodes, each pod
  std::int64_t priority{0};
  std::int32_t store{-1};  // -1: no transfers
  double read_bytes{0};    // < 0: the bytes of the pipeline's asset
  double write_bytes{0};
  // Effects on the model.
  stats::Distribution performance, robustness, fairness, size_bytes, inference_s;  // kTrain: drawn
  double measurement_noise{0};  // kEvaluate: standard deviation
  double gate{0};               // kEvaluate: least measured performance
  stats::Distribution pruned;   // kCompress
  std::vector<CompressionRow> compression;
  double harden_robustness{0}, harden_performance{0};  // kHarden: added
};

struct PipelineSpec {
  std::string name;
  std::string group;                     // virtual cluster
  std::optional<ArrivalModel> arrivals;  // none: only triggered
  std::vector<TaskSpec> tasks;           // in an order that respects `after`
  bool chain{true};                      // each task after the one before
  stats::Distribution asset_bytes;
  bool jobs{false};          // one task whose duration, GPUs and group come with the arrival's job
  double duration_cap_s{0};  // jobs: 0 none
  bool oversized_jobs_clamped{false};  // jobs larger than the cluster: cut down, not refused
  std::int32_t gpus_per_pod_max{0};    // jobs on nodes: larger ones become gangs; 0: largest node
};

enum class DriftKind : std::uint8_t { kNone, kGradual, kSudden, kRecurring, kReplayed };
enum class TriggerKind : std::uint8_t {
  kNever,
  kPeriodic,    // every `period`, counted from the start of the simulation
  kThreshold,   // loss of performance >= `loss`
  kCumulative,  // loss integrated over time >= `loss_hours`
  kCostAware,   // value lost since the last training >= cost of a retraining
  kStaleness,   // `period` after the data of the deployed model
  kOracle,      // the best times, knowing the drift to come: the bound
};

/// How a deployed model loses performance with time since its training.
struct DriftSpec {
  DriftKind kind{DriftKind::kNone};
  // kGradual: Richards curve from 0 to `floor` (greatest loss): rate per second, inflection, shape.
  double floor{0}, rate_per_s{0}, inflection_s{0}, shape{1}, q{1};
  // kSudden: jumps at exponential gaps, each of a drawn size; a training learns all before it.
  double jump_gap_s{0};
  stats::Distribution jump;
  // kRecurring: `amplitude` * (1 - cos(2 pi age / period)) / 2.
  double amplitude{0}, period_s{0};
  // kReplayed: recorded loss by age, linear between the points, constant after the last.
  std::vector<std::pair<double, double>> points;  // (seconds, loss)
};

/// A family of deployed models, and their renewal.
struct ModelsSpec {
  std::string name;
  std::uint32_t count{1};
  std::uint32_t pipeline{0};        // that retrains
  stats::Distribution performance;  // at training
  stats::Distribution age;          // seconds since training, at the start
  DriftSpec drift;
  TriggerKind trigger{TriggerKind::kNever};
  double period_s{0}, loss{0}, loss_hours{0};
  double cooldown_s{0};
  double monitor_interval_s{0};  // 0: seen at once
  double promotion_margin{-1};   // new model must measure >= current + margin; -1: always
  bool rollback{false};          // back to the one before if it turns out worse
  double rollback_after_s{0};
  double value_per_loss_hour{0};  // cost of one hour at loss 1
  double retrain_cost{0};         // in the same unit; 0: from the GPU hours of the pipeline
};

struct Experiment {
  std::string name;
  std::string source;  // file
  std::uint64_t seed{1};
  Nanos horizon{0};
  Nanos warmup{0};
  std::int64_t start_in_week_s{0};  // hour of week at time 0
  int replications{1};
  bool drain{false};  // no arrivals after the horizon, but run until all is done
  std::uint64_t records_max{50'000'000};
  std::vector<ClusterSpec> clusters;
  std::vector<StoreSpec> stores;
  std::vector<PipelineSpec> pipelines;
  std::vector<ModelsSpec> models;
};

/// Reads the files that an experiment names: traces, models, node lists. Paths as written in the
/// file.
class Loader {
 public:
  virtual ~Loader() = default;
  [[nodiscard]] virtual Result<Workload> workload(const std::string& path) = 0;
  [[nodiscard]] virtual Result<std::vector<NodeSpec>> nodes(const std::string& path) = 0;
  [[nodiscard]] virtual Result<Json> json(const std::string& path) = 0;
};

/// `key = value` pairs that replace or add values of the file, by path: ("clusters.gpu.slots",
/// "40"). The value is TOML.
using Overrides = std::vector<std::pair<std::string, std::string>>;

/// Reads and validates an experiment. All mistakes are reported at once, each
/// "FILE:LINE: KEY: what"; kCorrupt. Keys: docs/formats/experiment.md.
[[nodiscard]] Result<Experiment> parse_experiment(std::string_view untrusted_toml,
                                                  std::string_view file_name,
                                                  const Overrides& overrides, Loader& loader);

}  // namespace kansoku::simulate
