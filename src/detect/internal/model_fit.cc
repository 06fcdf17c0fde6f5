// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/model_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/rng.h"
#include "detect/internal/gaussian.h"
#include "detect/internal/thresholds.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr int kIterationsMax = 60;
constexpr double kTolerance = 1e-4;  // nats a row

double least_of(const Column& column, double center, double spread_min) {
  if (column.scale == Scale::kLinear) return std::max(column.floor, 1e-12);
  // The slope of ln(x + floor) times the floor.
  return std::max(column.floor / std::exp(center), spread_min);
}

}  // namespace

std::vector<Coordinate> choose_coordinates(std::span<const double> rows,
                                           std::span<const Column> columns, double spread_min) {
  std::vector<Coordinate> out;
  const std::size_t n = rows.size() / columns.size();
  std::vector<double> values;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (!is_modelled(columns[c].use)) continue;
    values.clear();
    for (std::size_t i = 0; i < n; ++i) {
      const double value = transformed(rows[i * columns.size() + c], columns[c]);
      if (!std::isnan(value)) values.push_back(value);
    }
    const auto needed =
        std::max(static_cast<double>(kPresentCountMin), kSeldomShare * static_cast<double>(n));
    if (static_cast<double>(values.size()) < needed) continue;
    Coordinate one;
    one.column = c;
    one.center = stats::median(values);
    one.least = least_of(columns[c], one.center, spread_min);
    one.spread = std::max(stats::kMadToSigma * stats::mad(values), one.least);
    out.push_back(one);
  }
  return out;
}

std::vector<double> fit_rows(std::span<const double> rows, std::span<const Column> columns,
                             std::span<const Coordinate> coordinates, std::uint64_t seed,
                             std::span<const double> bounds, std::span<const double> fill) {
  const std::size_t n = rows.size() / columns.size(), d = coordinates.size();
  std::vector<double> out(n * d);
  RandomStream random(seed, "detect.missing");
  std::vector<double> present;
  for (std::size_t j = 0; j < d; ++j) {
    const Column& column = columns[coordinates[j].column];
    const double bound = bounds.empty() ? kOutlier : bounds[j];
    present.clear();
    for (std::size_t i = 0; i < n; ++i) {
      const double value =
          coordinates[j].of(rows[i * columns.size() + coordinates[j].column], column);
      out[i * d + j] = std::clamp(value, -bound, bound);
      if (!std::isnan(value)) present.push_back(out[i * d + j]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      double& value = out[i * d + j];
      if (!std::isnan(value)) continue;
      value = !fill.empty()     ? fill[i * d + j]
              : present.empty() ? 0
                                : present[random.below(present.size())];
    }
  }
  return out;
}

void widen(stats::Mixture& mixture, std::span<const Coordinate> coordinates, double blur) {
  const std::size_t d = coordinates.size();
  for (std::size_t k = 0; k < mixture.weights.size(); ++k) {
    for (std::size_t i = 0; i < d; ++i) {
      const double width = blur * coordinates[i].least / coordinates[i].spread;
      mixture.covariances[(k * d + i) * d + i] += width * width;
    }
  }
}

Result<stats::Mixture> choose_mixture(std::span<const double> rows, int dimensions,
                                      int components_max, double ridge, std::uint64_t seed) {
  const auto d = static_cast<std::size_t>(dimensions);
  const std::size_t n = rows.size() / d;
  stats::Mixture best;
  double best_bic = std::numeric_limits<double>::infinity();
  int worse = 0;
  for (int k = 1; k <= components_max && worse < 2; ++k) {
    if (k > 1 && n < static_cast<std::size_t>(k) * 10) break;
    stats::MixtureOptions options;
    options.components = k;
    options.iterations_max = kIterationsMax;
    options.tolerance = kTolerance;
    options.ridge = ridge;
    options.seed = seed;
    TRY(auto fit, stats::fit_mixture(rows, dimensions, options));
    worse = fit.bic < best_bic ? 0 : worse + 1;
    if (fit.bic >= best_bic) continue;
    best_bic = fit.bic;
    best = std::move(fit.mixture);
  }
  return best;
}

namespace {

/// The steady steps of a run: without the first tenth, at most 50 steps.
Range steady_steps(const Cube& cube) {
  return {std::min(kWarmUpMax, cube.steps() / 10), cube.steps()};
}

std::vector<double> rows_of(const Cube& cube, Range range) {
  std::vector<double> out;
  for (std::size_t step = range.begin; step < range.end; ++step) {
    for (std::size_t r = 0; r < cube.ranks.size(); ++r) {
      const auto row = cube.row(step, r);
      const bool is_there =
          std::any_of(row.begin(), row.end(), [](double value) { return !std::isnan(value); });
      if (is_there) out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

std::vector<double> thinned(std::vector<double> rows, std::size_t columns, std::size_t rows_max) {
  const std::size_t n = rows.size() / columns;
  if (n <= rows_max) return rows;
  std::vector<double> out;
  for (std::size_t i = 0; i < rows_max; ++i) {
    const auto from = rows.begin() + static_cast<std::ptrdiff_t>(i * n / rows_max * columns);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(columns));
  }
  return out;
}

double mean_log_of(const stats::Mixture& mixture, std::span<const double> rows) {
  const auto density = stats::MixtureDensity::make(mixture);
  if (!density || rows.empty()) return -std::numeric_limits<double>::infinity();
  std::vector<double> logs(rows.size() / static_cast<std::size_t>(mixture.dimensions));
  density->log_density(rows, logs);
  return stats::mean(logs);
}

std::vector<double> scores_of(Scorer& scorer, std::span<const double> rows, std::size_t columns) {
  std::vector<double> out;
  for (std::size_t i = 0; i + columns <= rows.size(); i += columns) {
    const double score = scorer.score(rows.subspan(i, columns));
    if (!std::isnan(score)) out.push_back(score);
  }
  return out;
}

/// Outliers are drawn in to 8 spreads; rows more frequent than outliers are a phase of the job,
/// however far out they are.
std::vector<double> outlier_bounds(std::span<const double> rows, std::span<const Column> columns,
                                   std::span<const Coordinate> coordinates) {
  std::vector<double> out, sizes;
  for (const Coordinate& one : coordinates) {
    sizes.clear();
    for (std::size_t i = one.column; i < rows.size(); i += columns.size())
      if (const double value = one.of(rows[i], columns[one.column]); !std::isnan(value))
        sizes.push_back(std::fabs(value));
    out.push_back(sizes.empty() ? kOutlier
                                : std::max(kOutlier, stats::quantile(sizes, kPhaseQuantile)));
  }
  return out;
}

/// Mixture from the first rows; the ridge that serves later rows best.
Result<stats::Mixture> fit_part(const Cube& cube, Range range, Range later,
                                std::span<const Column> columns,
                                std::span<const Coordinate> coordinates,
                                const ModelOptions& options) {
  const auto first = thinned(rows_of(cube, range), cube.columns, options.rows_max);
  const auto bounds = outlier_bounds(first, columns, coordinates);
  const auto rows = fit_rows(first, columns, coordinates, options.seed, bounds);
  const auto held_out = fit_rows(thinned(rows_of(cube, later), cube.columns, options.rows_max),
                                 columns, coordinates, options.seed, bounds);
  const int d = static_cast<int>(coordinates.size());
  stats::Mixture best;
  double best_log = -std::numeric_limits<double>::infinity();
  for (const double ridge : {1e-3, 3e-2}) {
    TRY(auto mixture, choose_mixture(rows, d, options.components_max, ridge, options.seed));
    widen(mixture, coordinates, options.blur);
    const double log = mean_log_of(mixture, held_out);
    if (best.weights.empty() || log > best_log) {
      best_log = log;
      best = std::move(mixture);
    }
  }
  return best;
}

/// The threshold from the calibration slice, and its effect on the last one.
Result<JobModel> calibrate(JobModel::Parts parts, const Cube& cube, Range cut, Range measure,
                           double flag_rate) {
  TRY(auto model, JobModel::from_parts(parts));
  Scorer scorer(std::move(model));
  auto scores = scores_of(scorer, rows_of(cube, cut), cube.columns);
  if (scores.empty()) return Error{Code::kCorrupt, "fit job model: no row to set a threshold by"};
  parts.threshold = tail_level(scores, flag_rate);
  const auto later = scores_of(scorer, rows_of(cube, measure), cube.columns);
  const auto flags_above = [&](double threshold) {
    return static_cast<double>(
        std::count_if(later.begin(), later.end(), [&](double score) { return score > threshold; }));
  };
  scores.insert(scores.end(), later.begin(), later.end());
  const auto n = static_cast<double>(later.size());
  // The later slice may show that the first promised too much.
  if (n > 0 && flags_above(parts.threshold) > kMissedPromise * flag_rate * n)
    parts.threshold = std::max(parts.threshold, tail_level(scores, flag_rate));
  parts.flag_rate = flag_rate;
  parts.measured_points = n;
  parts.measured_flags = flags_above(parts.threshold);
  parts.level = stats::median(scores);
  parts.measured_clear = flags_above(parts.clear_cut());
  return JobModel::from_parts(std::move(parts));
}

/// Flagged points of each rank and window; the windows' likelihood gaps.
struct WindowScores {
  std::vector<stats::CountWindow> counts;
  std::vector<double> gaps;
};

WindowScores window_scores(Scorer& scorer, const Cube& cube, std::span<const Range> windows) {
  WindowScores out;
  for (const Range& window : windows) {
    const ScoredWindow scored = score_window(scorer, cube, window);
    const auto trials = static_cast<std::int64_t>(window.size());
    for (const double share : scored.flag_shares)
      out.counts.push_back({std::llround(share * static_cast<double>(trials)), trials});
    if (cube.ranks.size() >= 3) out.gaps.push_back(scored.gap);
  }
  return out;
}

std::vector<Pace> paces_of(const Cube& cube, std::span<const Range> windows) {
  std::vector<Pace> out(cube.columns);
  for (std::size_t c = 0; c < cube.columns; ++c) {
    std::vector<double> medians;
    for (const Range& window : windows)
      if (const double middle = window_median(cube, window, c); !std::isnan(middle))
        medians.push_back(middle);
    if (medians.empty()) continue;
    out[c].median = stats::median(medians);
    out[c].low = *std::min_element(medians.begin(), medians.end());
    out[c].high = *std::max_element(medians.begin(), medians.end());
  }
  return out;
}

/// A score that no healthy point reaches, by the windows' largest ones.
void learn_far_cut(JobModel::Parts& parts, Scorer& scorer, const Cube& cube,
                   std::span<const Range> windows, double alpha) {
  std::vector<double> maxima;
  for (const Range& window : windows) {
    double most = 0;
    for (std::size_t r = 0; r < cube.ranks.size(); ++r) {
      for (std::size_t step = window.begin; step < window.end; ++step) {
        const double score = scorer.score(cube.row(step, r)) - parts.level;
        if (std::isnan(score)) continue;
        most = std::max(most, score);
        parts.far_points += 1;
      }
    }
    maxima.push_back(most);
  }
  const double floor = kFarAbove * std::max(1.0, parts.threshold - parts.level);
  parts.far_cut = parts.level + window_cut(maxima, alpha, floor);
}

/// How far single coordinates go in health. One feature of forty that leaves its place moves the
/// whole density little; by itself it is plain.
void learn_cuts(JobModel::Parts& parts, const Cube& cube, std::span<const Range> windows,
                double alpha) {
  parts.cuts.clear();
  for (const Coordinate& coordinate : parts.coordinates) {
    std::vector<double> maxima;
    for (const Range& window : windows) {
      double most = 0;
      for (std::size_t r = 0; r < cube.ranks.size(); ++r) {
        for (std::size_t step = window.begin; step < window.end; ++step) {
          const double value =
              coordinate.of(cube.at(step, r, coordinate.column), parts.columns[coordinate.column]);
          if (!std::isnan(value)) most = std::max(most, std::fabs(value));
        }
      }
      maxima.push_back(most);
    }
    parts.cuts.push_back(window_cut(maxima, alpha, kOddSpreads));
  }
}

/// Learns the normal differences between windows: cuts between ranks, paces, how flags come
/// together.
void learn_windows(JobModel::Parts& parts, Scorer& scorer, const Cube& cube, Range steady,
                   Range held_out, const ModelOptions& options) {
  const std::size_t length =
      std::min(options.window_steps, std::max<std::size_t>(1, steady.size()));
  const auto windows = windows_of(steady, length, length);
  parts.paces = paces_of(cube, windows);
  parts.window_steps = options.window_steps;
  parts.long_steps = options.long_steps;
  const auto scores = window_scores(scorer, cube, windows_of(held_out, length, length));
  parts.correlation = correlation_of(scores.counts);
  learn_far_cut(parts, scorer, cube, windows_of(held_out, length, length), options.window_alpha);
  learn_cuts(parts, cube, windows, options.window_alpha);
  parts.gap_cut = window_cut(scores.gaps, options.window_alpha, 1);
  if (cube.ranks.size() < 3) return;
  const auto scales = peer_scales(cube, parts.columns, steady);
  parts.peers = learn_peers(cube, scales, windows, options.window_alpha);
  if (steady.size() >= options.long_steps)
    parts.long_peers =
        learn_peers(cube, scales, windows_of(steady, options.long_steps, length), 0.1);
}

}  // namespace

Result<JobModel> JobModel::fit(const Cube& cube, std::span<const Column> columns,
                               const ModelOptions& options, Key key) {
  const Range steady = steady_steps(cube);
  if (steady.size() < kStepsMin) {
    return Error{Code::kLimit, fmt::format("fit job model: {} steps after warm-up, {} are needed",
                                           steady.size(), kStepsMin)};
  }
  if (steady.size() * cube.ranks.size() < kRowsMin) {
    return Error{Code::kLimit, fmt::format("fit job model: {} rows after warm-up, {} are needed",
                                           steady.size() * cube.ranks.size(), kRowsMin)};
  }
  const auto part = [&](double share) {
    return steady.begin +
           static_cast<std::size_t>(std::lround(share * static_cast<double>(steady.size())));
  };
  const Range first{steady.begin, std::max(part(kFitShare), steady.begin + 1)};
  const Range cut{first.end, std::max(part(kCutShare), first.end + 1)};
  const Range measure{std::min(cut.end, steady.end), steady.end};
  Parts parts;
  parts.key = std::move(key);
  parts.flag_rate = options.flag_rate;
  parts.blur = options.blur;
  parts.columns.assign(columns.begin(), columns.end());
  parts.coordinates = choose_coordinates(rows_of(cube, first), columns, options.spread_min);
  if (parts.coordinates.empty())
    return Error{Code::kCorrupt, "fit job model: no column has values enough to be modelled"};
  TRY(parts.mixture, fit_part(cube, first, cut, columns, parts.coordinates, options));
  parts.rows = static_cast<double>(steady.size() * cube.ranks.size());
  TRY(auto model, calibrate(std::move(parts), cube, cut, measure, options.flag_rate));
  Parts whole = model.parts();
  Scorer scorer(std::move(model));
  learn_windows(whole, scorer, cube, steady, {cut.begin, steady.end}, options);
  take_margins(whole);
  return from_parts(std::move(whole));
}

}  // namespace kansoku::detect
