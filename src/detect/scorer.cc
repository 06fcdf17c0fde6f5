// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/numbers.h"
#include "detect/internal/gaussian.h"
#include "detect/job_model.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr double kRounding = 1e-9;  // of the floor: left of 0 after taking it off again
constexpr std::size_t kPatternsMax = 64;
constexpr std::size_t kMissingDraws = 256;
constexpr double kCoordinateMax = 1e6;  // farther is not farther

}  // namespace

double transformed(double value, const Column& column) {
  if (!std::isfinite(value)) return kNan;
  if (column.scale == Scale::kLinear) return value;
  return value < -column.floor ? kNan : std::log(std::max(value, 0.0) + column.floor);
}

double Coordinate::of(double value, const Column& column_of) const {
  const double coordinate = (transformed(value, column_of) - center) / spread;
  return std::clamp(coordinate, -kCoordinateMax, kCoordinateMax);
}

double Coordinate::value_of(double coordinate, const Column& column_of) const {
  const double transformed = center + coordinate * spread;
  if (column_of.scale == Scale::kLinear) return transformed;
  const double value = std::exp(std::min(transformed, 100.0)) - column_of.floor;
  return value < kRounding * column_of.floor ? 0 : value;
}

Scorer::Scorer(JobModel model, std::uint64_t seed) : model_(std::move(model)) {
  const stats::Mixture& mixture = model_.parts().mixture;
  auto density = stats::MixtureDensity::make(mixture);
  CHECK(density.has_value());  // the model was checked when it was made
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  RandomStream random(seed, "detect.scorer");
  draws_.resize(kMissingDraws * d);
  for (std::size_t i = 0; i < kMissingDraws; ++i)
    density->draw(random, std::span(draws_).subspan(i * d, d));
  std::vector<double> logs(kMissingDraws);
  density->log_density(draws_, logs);
  for (const double log : logs)
    draws_score_ -= log / static_cast<double>(kMissingDraws);
}

std::vector<double> Scorer::coordinates_of(std::span<const double> row) const {
  const JobModel::Parts& parts = model_.parts();
  std::vector<double> out;
  out.reserve(parts.coordinates.size());
  for (const Coordinate& coordinate : parts.coordinates)
    out.push_back(coordinate.of(row[coordinate.column], parts.columns[coordinate.column]));
  return out;
}

Scorer::Pattern Scorer::make_pattern(const std::vector<bool>& present) const {
  Pattern out;
  for (std::size_t i = 0; i < present.size(); ++i)
    if (present[i]) out.present.push_back(i);
  if (out.present.empty()) return out;
  auto density = stats::MixtureDensity::make(marginal(model_.parts().mixture, out.present));
  if (!density) return out;
  out.density = std::move(*density);
  const std::size_t d = out.present.size();
  std::vector<double> rows(kMissingDraws * d), logs(kMissingDraws);
  for (std::size_t i = 0; i < kMissingDraws; ++i)
    for (std::size_t j = 0; j < d; ++j)
      rows[i * d + j] = draws_[i * present.size() + out.present[j]];
  out.density->log_density(rows, logs);
  out.correction = draws_score_;
  for (const double log : logs)
    out.correction += log / static_cast<double>(kMissingDraws);
  return out;
}

Scorer::Pattern& Scorer::pattern_of(const std::vector<double>& coordinates) {
  std::vector<bool> present(coordinates.size());
  for (std::size_t i = 0; i < present.size(); ++i)
    present[i] = !std::isnan(coordinates[i]);
  const auto found = patterns_.find(present);
  if (found != patterns_.end()) return found->second;
  if (patterns_.size() == kPatternsMax) patterns_.clear();
  return patterns_.emplace(present, make_pattern(present)).first->second;
}

double Scorer::score(std::span<const double> row) {
  const std::vector<double> coordinates = coordinates_of(row);
  const Pattern& pattern = pattern_of(coordinates);
  if (!pattern.density) return kNan;
  std::vector<double> present;
  for (const std::size_t i : pattern.present)
    present.push_back(coordinates[i]);
  double log = 0;
  pattern.density->log_density(present, std::span(&log, 1));
  return pattern.correction - log;
}

std::vector<Contribution> Scorer::explain(std::span<const double> row, std::size_t count) {
  const std::vector<double> coordinates = coordinates_of(row);
  const Pattern& pattern = pattern_of(coordinates);
  if (!pattern.density) return {};
  std::vector<double> present;
  for (const std::size_t i : pattern.present)
    present.push_back(coordinates[i]);
  std::vector<double> by_mode(pattern.density->mixture().weights.size());
  pattern.density->component_log_densities(present, by_mode);
  const auto mode =
      static_cast<std::size_t>(std::max_element(by_mode.begin(), by_mode.end()) - by_mode.begin());
  const auto removed =
      explain_in_mode(pattern.density->mixture(), mode, present, std::min<std::size_t>(count, 64));
  std::vector<Contribution> out;
  double sum = 0;
  for (const Removal& removal : removed)
    sum += removal.drop;
  const JobModel::Parts& parts = model_.parts();
  for (const Removal& removal : removed) {
    const Coordinate& coordinate = parts.coordinates[pattern.present[removal.index]];
    const Column& column = parts.columns[coordinate.column];
    out.push_back({coordinate.column, coordinate.value_of(removal.expected, column),
                   row[coordinate.column], sum > 0 ? removal.drop / sum : 0});
  }
  return out;
}

ScoredWindow score_window(Scorer& scorer, const Cube& cube, Range window) {
  const std::size_t ranks = cube.ranks.size();
  ScoredWindow out;
  out.means.assign(ranks, kNan);
  out.flag_shares.assign(ranks, 0);
  std::vector<double> means;
  for (std::size_t r = 0; r < ranks; ++r) {
    double sum = 0, count = 0, flags = 0;
    for (std::size_t step = window.begin; step < window.end; ++step) {
      const double score = scorer.score(cube.row(step, r));
      if (std::isnan(score)) continue;
      sum += std::min(score, scorer.model().parts().threshold + kScoreAboveMax);
      flags += scorer.is_flagged(score) ? 1 : 0;
      count += 1;
    }
    if (count == 0) continue;
    out.means[r] = sum / count;
    out.flag_shares[r] = flags / count;
    out.flagged_steps += flags / static_cast<double>(ranks);
    means.push_back(out.means[r]);
    if (std::isnan(out.means[out.worst]) || out.means[r] > out.means[out.worst]) out.worst = r;
  }
  if (!means.empty()) out.gap = out.means[out.worst] - stats::median(means);
  return out;
}

}  // namespace kansoku::detect
