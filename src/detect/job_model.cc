// SPDX-License-Identifier: Apache-2.0
#include "detect/job_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/rng.h"
#include "detect/internal/gaussian.h"
#include "detect/internal/model_fit.h"
#include "detect/internal/thresholds.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr double kLabelledMax = 1e3;  // spreads
constexpr std::size_t kOwnDraws = 4096;
constexpr double kHigh = 0.95;  // quantile of the scores of a mode's own points
constexpr int kPasses = 3;
constexpr std::size_t kScoresMin = 20;  // that say where the median is
constexpr double kCutLeast = 1e-3;  // spreads; learnt ones are larger, and others switch tests off
constexpr double kCountMax = 1e18, kScoreMax = 1e30;
constexpr std::size_t kColumnsMax = 256;
constexpr std::size_t kComponentsMax = 64;
constexpr std::size_t kMergedComponentsMax = 8;
constexpr std::size_t kRefreshDraws = 512;
constexpr std::size_t kRefreshRowsLeast = 50;
constexpr std::size_t kMemoryMin = 300;  // points that stand for the old modes in a refresh

Error bad_model(std::string_view what) {
  return Error{Code::kCorrupt, fmt::format("job model: {}", what)};
}

bool is_finite_and(double value, double low, double high) {
  return std::isfinite(value) && value >= low && value <= high;
}

Result<void> check_columns(const JobModel::Parts& parts) {
  if (parts.columns.empty() || parts.columns.size() > kColumnsMax)
    return bad_model("columns: none, or too many");
  for (const Column& column : parts.columns)
    if (column.name.empty() || !is_finite_and(column.floor, 0, 1e30))
      return bad_model(fmt::format("columns: \"{}\" has no name or no floor", column.name));
  for (const Coordinate& one : parts.coordinates) {
    const bool is_good =
        one.column < parts.columns.size() && is_finite_and(one.center, -1e30, 1e30) &&
        is_finite_and(one.spread, 1e-300, 1e30) && is_finite_and(one.least, 0, 1e30) &&
        (parts.columns[one.column].scale == Scale::kLinear || parts.columns[one.column].floor > 0);
    if (!is_good) return bad_model("coordinates: one has no column, center or spread");
  }
  return {};
}

Result<void> check_peers(const PeerModel& peers, std::size_t columns, std::string_view name) {
  if (peers.empty() && peers.ranks.empty() && peers.offsets.empty()) return {};
  const bool is_whole = peers.scales.size() == columns && peers.persistent.size() == columns &&
                        peers.tail.size() == columns;
  if (!is_whole) return bad_model(fmt::format("{}: not one entry a column", name));
  for (std::size_t c = 0; c < columns; ++c) {
    if (!is_finite_and(peers.scales[c], 1e-300, 1e30) ||
        !is_finite_and(peers.persistent[c], kCutLeast, 1e30) ||
        !is_finite_and(peers.tail[c], kCutLeast, 1e30))
      return bad_model(fmt::format("{}: an entry makes no sense", name));
  }
  if (peers.offsets.size() != peers.ranks.size() * columns)
    return bad_model(fmt::format("{}: offsets are not one a rank and column", name));
  const bool is_finite = std::all_of(peers.offsets.begin(), peers.offsets.end(), [](double value) {
    return is_finite_and(value, -1e30, 1e30);
  });
  if (!is_finite) return bad_model(fmt::format("{}: an offset makes no sense", name));
  return {};
}

Result<void> check_numbers(const JobModel::Parts& parts) {
  for (const double score : {parts.threshold, parts.level, parts.far_cut, parts.gap_cut,
                             parts.own_margin, parts.level_margin, parts.far_margin})
    if (!is_finite_and(score, -kScoreMax, kScoreMax))
      return bad_model("a threshold is no finite number");
  for (const double count : {parts.measured_points, parts.measured_flags, parts.measured_clear,
                             parts.far_points, parts.rows})
    if (!is_finite_and(count, 0, kCountMax)) return bad_model("a count makes no sense");
  if (!is_finite_and(parts.flag_rate, 1e-9, 0.5)) return bad_model("flag_rate: out of bounds");
  if (!is_finite_and(parts.blur, 0, 100)) return bad_model("blur: out of bounds");
  if (!is_finite_and(parts.window_s, 0, 1e9)) return bad_model("window_s: out of bounds");
  return {};
}

/// A mixture of `b`'s coordinates in the scaling of `a`.
stats::Mixture rescaled(const JobModel::Parts& b, const JobModel::Parts& a) {
  stats::Mixture out = b.mixture;
  const std::size_t d = a.coordinates.size();
  for (std::size_t k = 0; k < out.weights.size(); ++k) {
    for (std::size_t i = 0; i < d; ++i) {
      const Coordinate &from = b.coordinates[i], &to = a.coordinates[i];
      double& mean = out.means[k * d + i];
      mean = (mean * from.spread + from.center - to.center) / to.spread;
      for (std::size_t j = 0; j < d; ++j) {
        const double factor =
            from.spread / to.spread * b.coordinates[j].spread / a.coordinates[j].spread;
        out.covariances[(k * d + i) * d + j] *= factor;
      }
    }
  }
  return out;
}

stats::Mixture joined(stats::Mixture a, const stats::Mixture& b, double share_of_b) {
  for (double& weight : a.weights)
    weight *= 1 - share_of_b;
  for (const double weight : b.weights)
    a.weights.push_back(weight * share_of_b);
  a.means.insert(a.means.end(), b.means.begin(), b.means.end());
  a.covariances.insert(a.covariances.end(), b.covariances.begin(), b.covariances.end());
  return reduce(a, kMergedComponentsMax);
}

std::vector<double> drawn(const stats::MixtureDensity& density, std::size_t n,
                          RandomStream& random) {
  const auto d = static_cast<std::size_t>(density.mixture().dimensions);
  std::vector<double> out(n * d);
  for (std::size_t i = 0; i < n; ++i)
    density.draw(random, std::span(out).subspan(i * d, d));
  return out;
}

double mean_log_density(const stats::MixtureDensity& density, std::span<const double> rows) {
  std::vector<double> logs(rows.size() / static_cast<std::size_t>(density.mixture().dimensions));
  density.log_density(rows, logs);
  return stats::mean(logs);
}

/// Weights of at least about `least`.
stats::Mixture with_least(stats::Mixture mixture, double least) {
  double sum = 0;
  for (double& weight : mixture.weights) {
    weight = std::max(weight, least);
    sum += weight;
  }
  for (double& weight : mixture.weights)
    weight /= sum;
  return mixture;
}

/// Score of the modes' own points by a mixture: the 95th percentile, each mode being a tenth of
/// them at least.
double own_score(const stats::Mixture& mixture) {
  const auto density = stats::MixtureDensity::make(mixture);
  const auto source = stats::MixtureDensity::make(with_least(mixture, kSeldomShare));
  if (!density || !source) return 0;
  RandomStream random(1, "detect.own_score");
  const auto rows = drawn(*source, kOwnDraws, random);
  std::vector<double> logs(kOwnDraws);
  density->log_density(rows, logs);
  return -stats::quantile(logs, 1 - kHigh);
}

/// Threshold, level and far_cut by the mixture as it is now.
void set_levels(JobModel::Parts& parts) {
  parts.threshold = own_score(parts.mixture) + parts.own_margin;
  parts.level = parts.threshold - parts.level_margin;
  parts.far_cut = parts.threshold + parts.far_margin;
}

/// How much larger scores of `old`'s points are under `now`, on average.
Result<double> score_shift(const stats::Mixture& old, const stats::Mixture& now,
                           std::uint64_t seed) {
  TRY(const auto before, stats::MixtureDensity::make(old));
  TRY(const auto after, stats::MixtureDensity::make(now));
  RandomStream random(seed, "detect.shift");
  const auto rows = drawn(before, kRefreshDraws, random);
  return mean_log_density(before, rows) - mean_log_density(after, rows);
}

PeerModel looser(const PeerModel& a, const PeerModel& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  PeerModel out = stricter(a, b);
  out.windows = a.windows + b.windows;
  return out;
}

bool have_same_axes(const JobModel::Parts& a, const JobModel::Parts& b) {
  const auto same_column = [](const Column& x, const Column& y) {
    return x.name == y.name && x.unit == y.unit && x.scale == y.scale && x.use == y.use;
  };
  const auto same_axis = [](const Coordinate& x, const Coordinate& y) {
    return x.column == y.column;
  };
  return std::equal(a.columns.begin(), a.columns.end(), b.columns.begin(), b.columns.end(),
                    same_column) &&
         std::equal(a.coordinates.begin(), a.coordinates.end(), b.coordinates.begin(),
                    b.coordinates.end(), same_axis);
}

}  // namespace

void take_margins(JobModel::Parts& parts) {
  parts.own_margin = parts.threshold - own_score(parts.mixture);
  parts.level_margin = parts.threshold - parts.level;
  parts.far_margin = parts.far_cut - parts.threshold;
}

std::string JobModel::Key::text() const {
  return fmt::format("{} | {} ranks | {}", command, world_size, hardware);
}

Result<JobModel> JobModel::from_parts(Parts parts) {
  TRY_VOID(check_columns(parts));
  if (parts.coordinates.empty() ||
      parts.mixture.dimensions != static_cast<int>(parts.coordinates.size()) ||
      parts.mixture.weights.empty() || parts.mixture.weights.size() > kComponentsMax)
    return bad_model("mixture: its dimensions are not the coordinates, or too many components");
  const auto density = stats::MixtureDensity::make(parts.mixture);
  if (!density) return bad_model("mixture: a covariance is not positive definite");
  TRY_VOID(check_numbers(parts));
  if (parts.window_steps == 0 || parts.window_steps > 1'000'000 || parts.long_steps == 0 ||
      parts.long_steps > 1'000'000)
    return bad_model("window_steps or long_steps: out of bounds");
  if (!is_finite_and(parts.correlation, 0, 0.999)) return bad_model("correlation: out of bounds");
  TRY_VOID(check_peers(parts.peers, parts.columns.size(), "peers"));
  TRY_VOID(check_peers(parts.long_peers, parts.columns.size(), "long_peers"));
  if (!parts.cuts.empty() && parts.cuts.size() != parts.coordinates.size())
    return bad_model("cuts: not one a coordinate");
  for (const double cut : parts.cuts)
    if (!is_finite_and(cut, kCutLeast, 1e30)) return bad_model("cuts: an entry makes no sense");
  if (!parts.paces.empty() && parts.paces.size() != parts.columns.size())
    return bad_model("paces: not one a column");
  for (const Pace& pace : parts.paces)
    if (!std::isfinite(pace.low + pace.high) || !(pace.low <= pace.median) ||
        !(pace.median <= pace.high))
      return bad_model("paces: a median is not between low and high");
  return JobModel(std::move(parts));
}

Result<JobModel> JobModel::merge(const JobModel& a, const JobModel& b, std::uint64_t seed) {
  if (!have_same_axes(a.parts_, b.parts_)) {
    return Error{Code::kUnsupported, "merge job models: they model other columns",
                 "models merge only if they were learnt of the same columns"};
  }
  Parts out = a.parts_;
  const stats::Mixture other = rescaled(b.parts_, a.parts_);
  const double sum = a.parts_.rows + b.parts_.rows;
  const double share = sum > 0 ? b.parts_.rows / sum : 0.5;
  out.mixture = joined(a.parts_.mixture, other, share);
  TRY(const double shift_a, score_shift(a.parts_.mixture, out.mixture, seed));
  TRY(const double shift_b, score_shift(other, out.mixture, seed));
  double scaling = 0;  // log density changes with the scaling of the axes
  for (std::size_t i = 0; i < out.coordinates.size(); ++i)
    scaling += std::log(b.parts_.coordinates[i].spread / out.coordinates[i].spread);
  out.threshold = std::max(a.parts_.threshold + shift_a, b.parts_.threshold + scaling + shift_b);
  out.measured_points += b.parts_.measured_points;
  out.measured_flags += b.parts_.measured_flags;
  out.measured_clear += b.parts_.measured_clear;
  out.far_points += b.parts_.far_points;
  out.correlation = std::max(out.correlation, b.parts_.correlation);
  out.far_cut = std::max(a.parts_.far_cut + shift_a, b.parts_.far_cut + scaling + shift_b);
  for (std::size_t i = 0; i < std::min(out.cuts.size(), b.parts_.cuts.size()); ++i)
    out.cuts[i] = std::max(out.cuts[i], b.parts_.cuts[i]);
  out.gap_cut = std::max(out.gap_cut, b.parts_.gap_cut);
  out.level = (1 - share) * (out.level + shift_a) + share * (b.parts_.level + scaling + shift_b);
  take_margins(out);
  out.blur = std::max(out.blur, b.parts_.blur);
  out.peers = looser(a.parts_.peers, b.parts_.peers);
  out.long_peers = looser(a.parts_.long_peers, b.parts_.long_peers);
  for (std::size_t c = 0; c < std::min(out.paces.size(), b.parts_.paces.size()); ++c) {
    const Pace& pace = b.parts_.paces[c];
    out.paces[c].median += share * (pace.median - out.paces[c].median);
    out.paces[c].low = std::min(out.paces[c].low, pace.low);
    out.paces[c].high = std::max(out.paces[c].high, pace.high);
  }
  out.rows = sum;
  out.refreshes += b.parts_.refreshes;
  return from_parts(std::move(out));
}

namespace {

/// One mode of all `rows` (n x d): they vary as `mixture` does within its modes, or more where they
/// do. A few rows alone would say that nothing else ever moves.
stats::Mixture mode_of(std::span<const double> rows, const stats::Mixture& mixture) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  const std::size_t n = rows.size() / d;
  stats::Mixture out;
  out.dimensions = mixture.dimensions;
  out.weights = {1};
  out.means.assign(d, 0);
  out.covariances.assign(d * d, 0);
  for (std::size_t k = 0; k < mixture.weights.size(); ++k)
    for (std::size_t i = 0; i < d * d; ++i)
      out.covariances[i] += mixture.weights[k] * mixture.covariances[k * d * d + i];
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = 0; i < d; ++i)
      out.means[i] += rows[r * d + i] / static_cast<double>(n);
  std::vector<double> own(d * d, 0.0), share(d, 0.0);
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = 0; i < d; ++i)
      for (std::size_t j = 0; j < d; ++j)
        own[i * d + j] += (rows[r * d + i] - out.means[i]) * (rows[r * d + j] - out.means[j]) /
                          static_cast<double>(n);
  for (std::size_t i = 0; i < d; ++i)
    if (const double variance = own[i * d + i]; variance > out.covariances[i * d + i])
      share[i] = std::sqrt(1 - out.covariances[i * d + i] / variance);
  for (std::size_t i = 0; i < d; ++i)
    for (std::size_t j = 0; j < d; ++j)
      out.covariances[i * d + j] += share[i] * share[j] * own[i * d + j];
  return out;
}

/// Least width of a mode, by coordinate.
std::vector<double> widths_of(const JobModel::Parts& parts) {
  std::vector<double> out;
  for (const Coordinate& one : parts.coordinates)
    out.push_back(parts.blur * one.least / one.spread);
  return out;
}

/// A larger diagonal keeps a matrix positive definite.
void hold_widths(stats::Mixture& mixture, std::span<const double> widths) {
  const std::size_t d = widths.size();
  for (std::size_t k = 0; k < mixture.weights.size(); ++k) {
    for (std::size_t i = 0; i < d; ++i) {
      double& variance = mixture.covariances[(k * d + i) * d + i];
      variance = std::max(variance, widths[i] * widths[i]);
    }
  }
}

std::vector<double> model_scores(const JobModel& model, std::span<const double> rows,
                                 std::uint64_t seed) {
  const std::size_t columns = model.parts().columns.size();
  Scorer scorer(model, seed);
  std::vector<double> out;
  for (std::size_t i = 0; i + columns <= rows.size(); i += columns)
    if (const double score = scorer.score(rows.subspan(i, columns)); !std::isnan(score))
      out.push_back(score);
  return out;
}

/// How far out a row may be to be of some mode: rows that the operator calls normal may be
/// anywhere.
std::vector<double> mode_bounds(const stats::Mixture& mixture) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  std::vector<double> out(d, kOutlier);
  for (std::size_t k = 0; k < mixture.weights.size(); ++k) {
    for (std::size_t i = 0; i < d; ++i) {
      const double spread = std::sqrt(mixture.covariances[(k * d + i) * d + i]);
      out[i] = std::max(
          out[i], std::fabs(mixture.means[k * d + i]) + std::max(kOutlier, kFarSpreads * spread));
    }
  }
  return out;
}

/// Moments of rows by mode, about the mode's old mean.
struct Moments {
  std::vector<double> mass, sums, products;  // k, k x d, k x d x d
};
Moments moments_of(std::span<const double> points, const stats::MixtureDensity& now,
                   const stats::Mixture& old) {
  const auto d = static_cast<std::size_t>(old.dimensions);
  const std::size_t count = old.weights.size();
  Moments out{std::vector<double>(count), std::vector<double>(count * d),
              std::vector<double>(count * d * d)};
  std::vector<double> terms(count), apart(d);
  for (std::size_t r = 0; r + d <= points.size(); r += d) {
    now.component_log_densities(points.subspan(r, d), terms);
    const double most = *std::max_element(terms.begin(), terms.end());
    double sum = 0;
    for (double& term : terms) {
      term = std::exp(term - most);
      sum += term;
    }
    for (std::size_t k = 0; k < count; ++k) {
      const double part = terms[k] / sum;
      if (part < 1e-9) continue;
      out.mass[k] += part;
      for (std::size_t i = 0; i < d; ++i)
        apart[i] = points[r + i] - old.means[k * d + i];
      for (std::size_t i = 0; i < d; ++i) {
        out.sums[k * d + i] += part * apart[i];
        for (std::size_t j = 0; j < d; ++j)
          out.products[(k * d + i) * d + j] += part * apart[i] * apart[j];
      }
    }
  }
  return out;
}

/// `old` after `rows` (m x columns), which weigh `share`: expectation-maximisation in which each
/// mode has so many points of the past, distributed as it is, beside those rows. Modes not seen
/// since stay as they were. Source: Gauvain and Lee 1994 (maximum a posteriori).
Result<stats::Mixture> refined(const JobModel::Parts& old, std::span<const double> rows,
                               double share, std::uint64_t seed) {
  TRY(const auto density, stats::MixtureDensity::make(old.mixture));
  const std::size_t d = old.coordinates.size(), n = rows.size() / old.columns.size();
  RandomStream random(seed, "detect.refresh");
  const auto points = fit_rows(rows, old.columns, old.coordinates, seed, mode_bounds(old.mixture),
                               drawn(density, n, random));
  const double memory = std::max(static_cast<double>(kMemoryMin),
                                 (1 / std::clamp(share, 0.05, 0.95) - 1) * static_cast<double>(n));
  const std::vector<double> widths = widths_of(old);
  stats::Mixture out = old.mixture;
  for (int pass = 0; pass < kPasses; ++pass) {
    TRY(const auto now, stats::MixtureDensity::make(out));
    const Moments seen = moments_of(points, now, old.mixture);
    for (std::size_t k = 0; k < out.weights.size(); ++k) {
      const double past = memory * old.mixture.weights[k], all = past + seen.mass[k];
      out.weights[k] = all / (memory + static_cast<double>(n));
      if (!(past > 0)) continue;
      for (std::size_t i = 0; i < d; ++i)
        out.means[k * d + i] = old.mixture.means[k * d + i] + seen.sums[k * d + i] / all;
      for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t j = 0; j < d; ++j) {
          const std::size_t at = (k * d + i) * d + j;
          out.covariances[at] = (past * old.mixture.covariances[at] + seen.products[at]) / all -
                                seen.sums[k * d + i] / all * (seen.sums[k * d + j] / all);
        }
      }
    }
    hold_widths(out, widths);
  }
  return with_least(std::move(out), kWeightLeast);
}

/// Points that the operator labels and no mode describes become a mode: the nearest one would grow
/// until it hides faults.
Result<void> take_label(JobModel::Parts& parts, std::span<const double> rows, std::uint64_t seed) {
  TRY(const auto model, JobModel::from_parts(parts));
  const auto scores = model_scores(model, rows, seed);
  if (scores.empty() ||
      stats::median(scores) < parts.level + kMostShare * (parts.threshold - parts.level))
    return {};
  const std::vector<double> bounds(parts.coordinates.size(), kLabelledMax);
  const auto points = fit_rows(rows, parts.columns, parts.coordinates, seed, bounds);
  parts.mixture = joined(parts.mixture, mode_of(points, parts.mixture), kLabelledShare);
  set_levels(parts);
  return {};
}

}  // namespace

Result<JobModel> JobModel::refresh(std::span<const double> rows,
                                   std::span<const std::vector<double>> labelled, double share,
                                   std::uint64_t seed) const {
  const std::size_t columns = parts_.columns.size(), n = rows.size() / columns;
  std::size_t labelled_count = 0;
  for (const std::vector<double>& rows_of_one : labelled)
    labelled_count += rows_of_one.size() / columns;
  if (n + labelled_count < kRefreshRowsLeast) {
    return Error{Code::kLimit, fmt::format("refresh job model: {} rows, {} are needed",
                                           n + labelled_count, kRefreshRowsLeast)};
  }
  std::vector<double> learnt, held_out;  // a third, from all of the time: it has phases
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = rows.subspan(i * columns, columns);
    auto& part = i % 3 == 2 ? held_out : learnt;
    part.insert(part.end(), row.begin(), row.end());
  }
  Parts out = parts_;
  if (!learnt.empty()) {
    TRY(out.mixture, refined(parts_, learnt, share, seed));
  }
  set_levels(out);
  for (const std::vector<double>& rows_of_one : labelled)
    TRY_VOID(take_label(out, rows_of_one, seed));
  TRY(const auto model, from_parts(out));
  const auto scores = model_scores(model, held_out, seed);
  const auto flags = static_cast<double>(std::count_if(
      scores.begin(), scores.end(), [&](double score) { return score > out.threshold; }));
  const double promised = parts_.flag_rate * static_cast<double>(scores.size());
  if (scores.size() >= kScoresMin && flags > kMissedPromise * promised)
    out.threshold = std::max(out.threshold, tail_level(scores, parts_.flag_rate));
  out.far_cut = std::max(out.far_cut, out.threshold);
  out.rows += static_cast<double>(n + labelled_count);
  ++out.refreshes;
  return from_parts(std::move(out));
}

}  // namespace kansoku::detect
