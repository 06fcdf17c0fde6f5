// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/time.h"
#include "detect/feature.h"
#include "detect/job_model.h"
#include "detect/thresholds.h"
#include "trace/incident.h"

namespace kansoku::detect {

/// Values of one process in one window.
struct Window {
  std::int32_t rank{-1};  // -1: the process has none
  std::int32_t pid{0};
  std::vector<double> values;  // one a feature, in its unit; NaN: not seen
};

struct DetectorOptions {
  std::string job;      // for suggestions
  JobModel::Key key{};  // of the model that is learnt
  Nanos window{std::chrono::seconds{1}};
  Nanos learn_time{kLearnTime};          // of windows before the first model; no alarm before
  double alarms_per_day{kAlarmsPerDay};  // budget of all tests together, of one job
  std::uint64_t seed{1};
};

/// Something that is wrong with a job, as it is seen now.
struct Observation {
  std::uint64_t episode{0};  // its number among those of this detector, from 1 on
  bool is_growth{false};     // of steady growth, which may go on beside others
  trace::IncidentFacts facts;
};

/// Always-on detection for one job on one host: learns from its first windows (or starts with a
/// stored model), then asks three questions of each window: is the job as it was (against its own
/// past), is each rank as its peers, does each window fit a normal mode (mixture). A window that
/// fits none becomes part of an episode, one for all ranks and features that belong together, with
/// begin, end and words. Constant memory; not shared between threads; deterministic for a seed.
class Detector {
 public:
  enum class State : std::uint8_t { kLearning, kWatching };

  /// `features` is borrowed. A model whose features differ is refused: kUnsupported.
  [[nodiscard]] static Result<Detector> create(std::span<const Feature> features,
                                               DetectorOptions options,
                                               std::optional<JobModel> model = std::nullopt);
  Detector(Detector&&) noexcept;
  Detector& operator=(Detector&&) noexcept;
  ~Detector();

  /// The windows of all ranks that ended at `wall_ns`, in any order; times must not go back (those
  /// that do are counted and skipped). Returns episodes that began, got worse (more ranks, another
  /// kind) or ended, each in its present form. Those of a run end with it: where all processes are
  /// others than before, the job was started anew.
  [[nodiscard]] std::vector<Observation> on_windows(std::int64_t wall_ns,
                                                    std::span<const Window> windows);
  /// The run is over or the agent stops: ends open incidents.
  [[nodiscard]] std::vector<Observation> finish(std::int64_t wall_ns);

  /// The operator's label on an episode: if it was normal, the next refresh learns its windows, and
  /// growth of that speed (until the agent ends); if it was not, they are kept out. False if no
  /// such episode is kept: then nothing is learnt.
  bool take_label(std::uint64_t episode, bool is_normal);

  struct RankScore {
    std::int32_t rank{-1}, pid{0};
    double score{0};  // negative log-likelihood of the last window; NaN while learning
    bool is_flagged{false};
  };
  struct Status {
    State state{State::kLearning};
    double learned{0};    // 0 to 1
    double threshold{0};  // of the score, as calibrated
    std::vector<RankScore> ranks;
    // False alarms a day that the flagged share of healthy windows lets expect, and its 95 %
    // interval; 0 while learning.
    double alarms_per_day{0}, alarms_low{0}, alarms_high{0};
    std::uint64_t windows{0}, flagged{0}, skipped{0}, refreshes{0};
    std::uint64_t failed_fits{0};  // of models, tried again later
    std::string fit_problem;       // of the last try; empty after a good one
  };
  [[nodiscard]] Status status() const;
  /// The model in use, to be stored; null while learning.
  [[nodiscard]] const JobModel* model() const;

 private:
  struct Impl;
  explicit Detector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::detect
