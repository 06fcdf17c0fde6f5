// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/feature_row.h"
#include "common/result.h"
#include "common/time.h"
#include "detect/detector.h"
#include "incident/book.h"
#include "trace/incident.h"

namespace kansoku::agent {

STAT(agent_refused_models, kNotice, kAnalysis,
     "model files that could not be read; the log names them, and their jobs are learnt again");
STAT(agent_failed_model_writes, kDataLoss, kAnalysis,
     "models that could not be written: what was learnt is lost at the next start");
STAT(agent_jobs_over_limit, kDataLoss, kAnalysis,
     "windows of jobs beyond the limit of 256 at once; those are measured but not judged");

struct JobTableOptions {
  std::string host, hardware;
  std::string models_folder;  // "" = models are not kept
  Nanos window{std::chrono::seconds{1}}, learn_time{std::chrono::minutes{5}};
  Nanos save_every{std::chrono::minutes{10}};
  double alarms_per_day{1};
  std::uint64_t seed{1};
  std::function<void(const std::string&)> log;
};

/// The jobs that run here and their detectors. Models are kept in a folder, one file for each kind
/// of job, so that its next run is judged from the start. Single-threaded.
class JobTable {
 public:
  static constexpr std::size_t kJobsMax = 256, kJobsOfUserMax = kJobsMax / 2;
  static constexpr Nanos kForgetAfter = std::chrono::seconds{30};  // without a window
  static constexpr int kRunIsOverAfter = 3;                        // windows without one
  // A process that is no rank is a job once it has lived so long: most do not.
  static constexpr Nanos kLivesAtLeast = std::chrono::seconds{10};
  static constexpr std::size_t kModelsMax = 1000;  // files; the oldest go

  explicit JobTable(JobTableOptions options);

  /// One window of all processes. Gives the troubles of their jobs that begin, change or end.
  [[nodiscard]] std::vector<incident::Observation> on_rows(std::int64_t wall_ns, BootTime now,
                                                           const std::vector<FeatureRow>& rows);
  /// The same of a window that is not to be judged: jobs that are over are forgotten, no more.
  [[nodiscard]] std::vector<incident::Observation> pass(std::int64_t wall_ns, BootTime now,
                                                        const std::vector<FeatureRow>& rows);
  /// Ends open incidents and stores the models.
  [[nodiscard]] std::vector<incident::Observation> finish(std::int64_t wall_ns);
  /// The operator's label on a reported incident; false if its job is over, or the episode long
  /// ago.
  bool take_label(const incident::Reporter& reporter, trace::IncidentLabel label);

  struct JobStatus {
    std::string name, key, command;
    std::int32_t world_size{1};
    bool is_local{false};  // the name means nothing on other hosts
    detect::Detector::Status detector;
  };
  [[nodiscard]] std::vector<JobStatus> status() const;

  struct Counters {
    std::uint64_t refused_models{0}, failed_writes{0}, over_limit{0};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Job {
    detect::JobModel::Key key;
    std::string model_path;
    detect::Detector detector;
    BootTime seen_at{}, save_at{};
    std::uint64_t saved_refreshes{0};
    bool is_saved{false}, is_local{false}, has_tried_saving{false}, has_run{true};
    std::uint32_t user{0};        // whose it is
    std::uint32_t generation{0};  // of detectors here: each numbers its episodes from 1 on
  };
  Job* find_or_create(const FeatureRow& row, BootTime now);
  [[nodiscard]] bool has_room_for(std::uint32_t user) const;
  [[nodiscard]] bool is_too_young(const FeatureRow& row, BootTime now);
  void prune_models() const;
  [[nodiscard]] std::optional<detect::JobModel> read_model(const std::string& path);
  void save(Job& job);
  /// Runs of jobs that were not seen for kRunIsOverAfter windows, and jobs that were not for
  /// kForgetAfter; the ends of their incidents.
  void forget(std::int64_t wall_ns, BootTime now, std::vector<incident::Observation>& out);

  JobTableOptions options_;
  std::map<std::string, Job> jobs_;
  struct Young {
    BootTime first{}, last{};
  };
  std::map<std::string, Young> young_;  // not jobs yet, by name
  Counters counters_;
  std::uint32_t generations_{0};
};

}  // namespace kansoku::agent
