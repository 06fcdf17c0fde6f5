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
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr double kOften = 0.99, kAboveOften = 1.2;
constexpr std::size_t kColumnsMax = 256;
constexpr std::size_t kComponentsMax = 64;
constexpr std::size_t kMergedComponentsMax = 8;
constexpr std::size_t kDraws = 512;
constexpr std::size_t kRefreshRowsMin = 50;
constexpr std::size_t kMemoryMin = 300;  // points that stand for the old modes in a refresh

Error corrupt(std::string_view what) {
  return Error{Code::kCorrupt, fmt::format("job model: {}", what)};
}

bool is_finite_and(double value, double low, double high) {
  return std::isfinite(value) && value >= low && value <= high;
}

Result<void> check_columns(const JobModel::Parts& parts) {
  if (parts.columns.empty() || parts.columns.size() > kColumnsMax)
    return corrupt("columns: none, or too many");
  for (const Column& column : parts.columns)
    if (column.name.empty() || !is_finite_and(column.floor, 0, 1e30))
      return corrupt(fmt::format("columns: \"{}\" has no name or no floor", column.name));
  for (const Coordinate& one : parts.coordinates) {
    const bool is_good =
        one.column < parts.columns.size() && is_finite_and(one.center, -1e30, 1e30) &&
        is_finite_and(one.spread, 1e-300, 1e30) && is_finite_and(one.least, 0, 1e30) &&
        (parts.columns[one.column].scale == Scale::kLinear || parts.columns[one.column].floor > 0);
    if (!is_good) return corrupt("coordinates: one has no column, center or spread");
  }
  return {};
}

Result<void> check_peers(const PeerModel& peers, std::size_t columns, std::string_view name) {
  if (peers.empty() && peers.ranks.empty() && peers.offsets.empty()) return {};
  const bool is_whole = peers.scales.size() == columns && peers.persistent.size() == columns &&
                        peers.tail.size() == columns;
  if (!is_whole) return corrupt(fmt::format("{}: not one entry a column", name));
  for (std::size_t c = 0; c < columns; ++c) {
    if (!is_finite_and(peers.scales[c], 1e-300, 1e30) ||
        !is_finite_and(peers.persistent[c], 0, 1e30) || !is_finite_and(peers.tail[c], 0, 1e30))
      return corrupt(fmt::format("{}: an entry makes no sense", name));
  }
  if (peers.offsets.size() != peers.ranks.size() * columns)
    return corrupt(fmt::format("{}: offsets are not one a rank and column", name));
  const bool is_finite = std::all_of(peers.offsets.begin(), peers.offsets.end(), [](double value) {
    return is_finite_and(value, -1e30, 1e30);
  });
  if (!is_finite) return corrupt(fmt::format("{}: an offset makes no sense", name));
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
  return reduce(std::move(a), kMergedComponentsMax);
}

std::vector<double> drawn(const stats::MixtureDensity& density, std::size_t n,
                          RandomStream& random) {
  const auto d = static_cast<std::size_t>(density.mixture().dimensions);
  std::vector<double> out(n * d);
  for (std::size_t i = 0; i < n; ++i)
    density.draw(random, std::span(out).subspan(i * d, d));
  return out;
}

double mean_log(const stats::MixtureDensity& density, std::span<const double> rows) {
  std::vector<double> logs(rows.size() / static_cast<std::size_t>(density.mixture().dimensions));
  density.log_density(rows, logs);
  return stats::mean(logs);
}

/// How much larger scores of `old`'s points are under `now`, on average.
Result<double> score_shift(const stats::Mixture& old, const stats::Mixture& now,
                           std::uint64_t seed) {
  TRY(const auto before, stats::MixtureDensity::make(old));
  TRY(const auto after, stats::MixtureDensity::make(now));
  RandomStream random(seed, "detect.shift");
  const auto rows = drawn(before, kDraws, random);
  return mean_log(before, rows) - mean_log(after, rows);
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

std::string JobModel::Key::text() const {
  return fmt::format("{} | {} ranks | {}", command, world_size, hardware);
}

Result<JobModel> JobModel::from_parts(Parts parts) {
  TRY_VOID(check_columns(parts));
  if (parts.coordinates.empty() ||
      parts.mixture.dimensions != static_cast<int>(parts.coordinates.size()) ||
      parts.mixture.weights.empty() || parts.mixture.weights.size() > kComponentsMax)
    return corrupt("mixture: its dimensions are not the coordinates, or too many components");
  const auto density = stats::MixtureDensity::make(parts.mixture);
  if (!density) return corrupt("mixture: a covariance is not positive definite");
  for (const double number :
       {parts.threshold, parts.flag_rate, parts.measured_points, parts.measured_flags,
        parts.measured_clear, parts.correlation, parts.level, parts.far_cut, parts.far_points,
        parts.gap_cut, parts.rows})
    if (!std::isfinite(number)) return corrupt("a threshold or count is no finite number");
  if (parts.window_steps == 0 || parts.window_steps > 1'000'000 || parts.long_steps == 0 ||
      parts.long_steps > 1'000'000)
    return corrupt("window_steps or long_steps: out of bounds");
  if (!is_finite_and(parts.correlation, 0, 0.999)) return corrupt("correlation: out of bounds");
  TRY_VOID(check_peers(parts.peers, parts.columns.size(), "peers"));
  TRY_VOID(check_peers(parts.long_peers, parts.columns.size(), "long_peers"));
  if (!parts.cuts.empty() && parts.cuts.size() != parts.coordinates.size())
    return corrupt("cuts: not one a coordinate");
  for (const double cut : parts.cuts)
    if (!is_finite_and(cut, 0, 1e30)) return corrupt("cuts: an entry makes no sense");
  if (!parts.paces.empty() && parts.paces.size() != parts.columns.size())
    return corrupt("paces: not one a column");
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

Result<JobModel> JobModel::refresh(std::span<const double> rows, double share,
                                   std::uint64_t seed) const {
  const std::size_t columns = parts_.columns.size(), n = rows.size() / columns;
  if (n < kRefreshRowsMin) {
    return Error{Code::kLimit,
                 fmt::format("refresh job model: {} rows, {} are needed", n, kRefreshRowsMin)};
  }
  const std::size_t learnt = n * 2 / 3;
  auto fitted =
      fit_rows(rows.subspan(0, learnt * columns), parts_.columns, parts_.coordinates, seed);
  // The old modes live on as points drawn from them.
  TRY(const auto old, stats::MixtureDensity::make(parts_.mixture));
  RandomStream random(seed, "detect.refresh");
  const double kept = std::clamp(1 / std::clamp(share, 0.05, 1.0) - 1, 0.0, 20.0);
  const auto memory =
      drawn(old, std::max(kMemoryMin, static_cast<std::size_t>(kept * static_cast<double>(learnt))),
            random);
  fitted.insert(fitted.end(), memory.begin(), memory.end());
  stats::MixtureOptions options;
  options.components = parts_.mixture.components();
  options.iterations_max = 30;
  options.tolerance = 1e-4;
  options.ridge = 1e-3;
  TRY(auto fit, stats::refine_mixture(fitted, parts_.mixture, options));
  Parts out = parts_;
  out.mixture = std::move(fit.mixture);
  TRY(const double shift, score_shift(parts_.mixture, out.mixture, seed));
  TRY(auto model, from_parts(out));
  Scorer scorer(std::move(model), seed);
  std::vector<double> scores;
  for (std::size_t i = learnt; i < n; ++i)
    if (const double score = scorer.score(rows.subspan(i * columns, columns)); !std::isnan(score))
      scores.push_back(score);
  out.threshold = parts_.threshold + shift;
  // Upwards at once if healthy rows need it, downwards never by less data than set it.
  if (scores.size() >= 20)
    out.threshold = std::max(out.threshold, tail_level(scores, parts_.flag_rate));
  // What health or the operator's word shows often enough is odd by itself no more.
  for (std::size_t j = 0; j < out.cuts.size(); ++j) {
    const Coordinate& coordinate = parts_.coordinates[j];
    std::vector<double> sizes;
    for (std::size_t i = 0; i < n; ++i) {
      const double value =
          coordinate.of(rows[i * columns + coordinate.column], parts_.columns[coordinate.column]);
      if (!std::isnan(value)) sizes.push_back(std::fabs(value));
    }
    if (sizes.size() >= kRefreshRowsMin)
      out.cuts[j] = std::max(out.cuts[j], kAboveOften * stats::quantile(sizes, kOften));
  }
  out.level += shift;
  out.far_cut = std::max(out.far_cut + shift, out.threshold);
  out.rows += static_cast<double>(n);
  ++out.refreshes;
  return from_parts(std::move(out));
}

}  // namespace kansoku::detect
