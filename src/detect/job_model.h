// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "detect/rank_tests.h"
#include "detect/table.h"
#include "detect/thresholds.h"
#include "stats/mixture.h"

namespace kansoku::detect {

/// ln(value + floor) or the value; NaN if missing or below -floor (a counter that wrapped).
[[nodiscard]] double transformed(double value, const Column& column);

/// One axis of the mixture: a column, transformed and scaled robustly.
struct Coordinate {
  std::size_t column{0};  // index into JobModel::Parts::columns
  double center{0};       // median of the transformed values
  double spread{1};       // 1.4826 MAD of them, at least `least`
  double least{1};        // the column's floor, as a difference there

  /// transformed() and scaled, within a million spreads; NaN as there.
  [[nodiscard]] double of(double value, const Column& column_of) const;
  /// The value in the column's unit.
  [[nodiscard]] double value_of(double coordinate, const Column& column_of) const;
};

/// Medians of a column's windows, over all ranks: the job against its history.
struct Pace {
  double median{0};
  double low{0}, high{0};  // of the windows' medians
};

struct ModelOptions {
  double flag_rate{kFlagRate};        // share of healthy points above the threshold
  double window_alpha{kWindowAlpha};  // of the cuts between ranks, for one window and column
  std::size_t window_steps{20};       // of the tests on windows
  std::size_t long_steps{200};        // of tests that must do without a steady past
  int components_max{8};
  double spread_min{kTimeShare};  // of logarithms: relative differences below it mean nothing
  double blur{0.5};               // of the least difference that matters: no mode is narrower
  std::size_t rows_max{4000};     // that the mixture is fitted to, evenly chosen
  std::uint64_t seed{1};
};

/// Model of a job's normal modes: scaling of its features, mixture, thresholds, tail. Keyed by the
/// kind of job, not by its run, so that its next run starts with it. A value type.
class JobModel {
 public:
  /// A key of facts that stay the same from run to run.
  struct Key {
    std::string command{};  // program and script without paths, ports, numbers that change
    std::int32_t world_size{1};
    std::string hardware{};  // "2 x Intel(R) Xeon(R); no GPU"
    [[nodiscard]] std::string text() const;
  };
  struct Parts {
    Key key;
    std::vector<Column> columns;
    std::vector<Coordinate> coordinates;
    stats::Mixture mixture;                        // over the coordinates
    double threshold{0};                           // of the negative log-likelihood
    double flag_rate{0};                           // that the threshold was set for
    double measured_points{0}, measured_flags{0};  // on held-out points
    double measured_clear{0};                      // flags above clear_cut()
    double correlation{0};                         // of the flags in one window
    double level{0};           // median negative log-likelihood of held-out points
    double far_cut{0};         // two points of a rank in a row above it need no third one
    double far_points{0};      // held-out points that it was learnt of; all are below
    std::vector<double> cuts;  // by coordinate: a deviation beyond it is odd by itself, in spreads
    std::size_t window_steps{20}, long_steps{200};
    PeerModel peers, long_peers;  // by column; empty: not learnt (fewer than three ranks)
    double gap_cut{0};            // of a window's likelihood gap
    // Distances as they were when the model was fitted, which a refreshed one keeps: of the
    // threshold above the scores of its own modes' points (95th percentile, each mode being a tenth
    // of them at least, so that it does not matter in which phase the job was lately), of the level
    // below the threshold, of far_cut above it.
    double own_margin{0}, level_margin{0}, far_margin{0};
    double blur{0};           // of ModelOptions
    double window_s{0};       // that a row tells of; 0: steps, or not known
    std::vector<Pace> paces;  // by column
    /// Half as far again from the median as the threshold: scores between are hardly odd.
    [[nodiscard]] double clear_cut() const { return level + 1.5 * (threshold - level); }
    double rows{0};  // that it was learnt of
    std::uint64_t refreshes{0};
  };

  /// Fits to the healthy steps of `cube` in time order: mixture on the first three fifths,
  /// threshold on the next, the promised rate measured on the last. kLimit with fewer than 30 rows;
  /// kCorrupt if no column can be modelled. Deterministic for a seed.
  [[nodiscard]] static Result<JobModel> fit(const Cube& cube, std::span<const Column> columns,
                                            const ModelOptions& options, Key key);
  /// kCorrupt names the parts that do not hold together.
  [[nodiscard]] static Result<JobModel> from_parts(Parts parts);
  /// One model of two of the same job: mixtures joined by weight, the higher cut of each.
  /// kUnsupported if their columns differ.
  [[nodiscard]] static Result<JobModel> merge(const JobModel& a, const JobModel& b,
                                              std::uint64_t seed = 1);
  /// The model after more healthy rows (n x columns, time order): they weigh `share`, the old modes
  /// the rest; a mode that no row is of stays as it is. Each of `labelled`, m x columns and normal
  /// by the operator's label, is a mode of its own if no other describes it. No mode becomes
  /// narrower than the least difference that matters. Threshold and level keep their distance from
  /// the scores of the modes' own points; the threshold rises if every third row, which are not
  /// fitted to, needs it. Cuts, paces and scales stay: a slow drift must not drag its own measure
  /// along. kLimit with fewer than 50 rows.
  [[nodiscard]] Result<JobModel> refresh(std::span<const double> rows,
                                         std::span<const std::vector<double>> labelled,
                                         double share, std::uint64_t seed) const;

  [[nodiscard]] const Parts& parts() const { return parts_; }

  /// The file's text: one line of JSON with "schema": "kansoku.job_model/1", then a line with its
  /// checksum.
  [[nodiscard]] std::string to_text() const;
  /// kCorrupt: checksum, schema, or a member that makes no sense, named.
  [[nodiscard]] static Result<JobModel> from_text(std::string_view untrusted);

 private:
  explicit JobModel(Parts parts) : parts_(std::move(parts)) {}
  Parts parts_;
};

/// How much one column adds to a row's score.
struct Contribution {
  std::size_t column{0};
  double expected{0}, seen{0};  // in its unit; expected: the conditional mean given the others
  double share{0};              // of the score that all contributions explain
};

/// Scores rows by a model. Missing values are left out of the density (marginals), with a constant
/// for their average contribution. Keeps one density for each pattern of missing values, at most
/// 64. Not shared between threads.
class Scorer {
 public:
  /// `seed` of the draws behind those constants.
  explicit Scorer(JobModel model, std::uint64_t seed = 1);

  /// Negative log-likelihood of a row (values of the model's columns); NaN if all are missing.
  [[nodiscard]] double score(std::span<const double> row);
  [[nodiscard]] bool is_flagged(double score) const { return score > model_.parts().threshold; }
  /// The columns behind a score, most first, at most `count`: in the nearest mode, the coordinate
  /// whose absence lowers the score most, then the next given that this one is gone.
  [[nodiscard]] std::vector<Contribution> explain(std::span<const double> row, std::size_t count);
  [[nodiscard]] const JobModel& model() const { return model_; }

 private:
  struct Pattern {
    std::vector<std::size_t> present;  // coordinates
    std::optional<stats::MixtureDensity> density;
    double correction{0};
  };
  Pattern& pattern_of(const std::vector<double>& coordinates);
  [[nodiscard]] Pattern make_pattern(const std::vector<bool>& present) const;
  [[nodiscard]] std::vector<double> coordinates_of(std::span<const double> row) const;

  JobModel model_;
  std::vector<double> draws_;  // of the whole mixture
  double draws_score_{0};
  std::map<std::vector<bool>, Pattern> patterns_;
};

/// One window under a model.
struct ScoredWindow {
  std::vector<double> means;        // of the score, by rank; each point at most 20 above the
                                    // threshold; NaN: no values
  std::vector<double> flag_shares;  // of a rank's points
  double flagged_steps{0};          // flagged points over ranks: steps, if all ranks agree
  double gap{0};                    // highest mean minus the median over ranks
  std::size_t worst{0};             // rank index of the highest mean
};
[[nodiscard]] ScoredWindow score_window(Scorer& scorer, const Cube& cube, Range window);

}  // namespace kansoku::detect
