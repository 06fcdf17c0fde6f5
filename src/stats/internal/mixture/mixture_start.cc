// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/mixture/mixture_start.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/rng.h"
#include "stats/summary.h"

namespace kansoku::stats::internal {
namespace {

constexpr int kLloydRounds = 10;

/// Indices of at most `limit` rows, evenly spaced in lexicographic order: the same rows whatever
/// order they came in.
std::vector<std::size_t> ordered_rows(std::span<const double> rows, std::size_t d,
                                      std::size_t limit) {
  struct Key {
    double first;
    std::size_t row;
  };
  const std::size_t n = rows.size() / d;
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i)
    keys[i] = {rows[i * d], i};
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    if (a.first != b.first) return a.first < b.first;
    const double* left = rows.data() + a.row * d;
    const double* right = rows.data() + b.row * d;
    return std::lexicographical_compare(left, left + d, right, right + d);
  });
  const std::size_t count = std::min(n, limit);
  std::vector<std::size_t> picked(count);
  for (std::size_t i = 0; i < count; ++i)
    picked[i] = keys[i * n / count].row;
  return picked;
}

}  // namespace

Mixture quantile_start(std::span<const double> rows, std::size_t components, double ridge) {
  std::vector<double> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end());
  const double centre = mean(sorted);
  double square = 0;
  for (const double value : sorted)
    square += (value - centre) * (value - centre);
  const auto k = static_cast<double>(components);
  const double sigma = std::sqrt(square / static_cast<double>(sorted.size())) / k;
  Mixture start;
  start.weights.assign(components, 1 / k);
  start.covariances.assign(components, sigma * sigma + ridge);
  for (std::size_t i = 0; i < components; ++i)
    start.means.push_back(quantile(sorted, (static_cast<double>(i) + 0.5) / k));
  return start;
}

KMeansStart::KMeansStart(std::span<const double> rows, std::size_t dimensions)
    : dimensions_(dimensions), middle_(dimensions), scale_(dimensions) {
  const std::vector<std::size_t> picked = ordered_rows(rows, dimensions, kStartRowsMax);
  count_ = picked.size();
  rows_.resize(count_ * dimensions);
  for (std::size_t i = 0; i < count_; ++i) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(picked[i] * dimensions), dimensions,
                rows_.begin() + static_cast<std::ptrdiff_t>(i * dimensions));
  }
  const auto n = static_cast<double>(count_);
  for (std::size_t j = 0; j < dimensions; ++j) {
    double sum = 0;
    for (std::size_t i = 0; i < count_; ++i)
      sum += rows_[i * dimensions + j] / n;
    middle_[j] = sum;
    double square = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      double& value = rows_[i * dimensions + j];
      value -= sum;
      square += value * value / n;
    }
    scale_[j] = square > 0 && std::isfinite(square) ? std::sqrt(square) : 1;
    for (std::size_t i = 0; i < count_; ++i)
      rows_[i * dimensions + j] /= scale_[j];
  }
}

double KMeansStart::distance(std::size_t row, const double* centre) const {
  const double* values = rows_.data() + row * dimensions_;
  double sum = 0;
  for (std::size_t j = 0; j < dimensions_; ++j)
    sum += (values[j] - centre[j]) * (values[j] - centre[j]);
  return sum;
}

std::vector<double> KMeansStart::pick_centres(std::size_t components, std::uint64_t seed) const {
  RandomStream random(seed, "stats.mixture.start");
  std::vector<double> centres;
  std::vector<double> nearest(count_, std::numeric_limits<double>::max());
  std::size_t row = random.below(count_);
  for (std::size_t k = 0; k < components; ++k) {
    const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(row * dimensions_);
    centres.insert(centres.end(), begin, begin + static_cast<std::ptrdiff_t>(dimensions_));
    double total = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      nearest[i] = std::min(nearest[i], distance(i, centres.data() + k * dimensions_));
      total += nearest[i];
    }
    // Fewer different rows than components: the rest starts where others are.
    if (!(total > 0)) {
      row = random.below(count_);
      continue;
    }
    double left = random.uniform() * total;
    row = count_;
    for (std::size_t i = 0; i < count_; ++i) {
      if (nearest[i] <= 0) continue;
      row = i;  // rounding may leave a rest after the last: it is taken then
      left -= nearest[i];
      if (left <= 0) break;
    }
  }
  return centres;
}

std::vector<std::size_t> KMeansStart::assign(const std::vector<double>& centres) const {
  std::vector<std::size_t> cluster(count_);
  const std::size_t components = centres.size() / dimensions_;
  for (std::size_t i = 0; i < count_; ++i) {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < components; ++k) {
      const double squared = distance(i, centres.data() + k * dimensions_);
      if (squared >= best) continue;
      best = squared;
      cluster[i] = k;
    }
  }
  return cluster;
}

void KMeansStart::move_centres(const std::vector<std::size_t>& cluster,
                               std::vector<double>& centres) const {
  const std::size_t components = centres.size() / dimensions_;
  std::vector<double> sums(centres.size());
  std::vector<double> sizes(components);
  for (std::size_t i = 0; i < count_; ++i) {
    sizes[cluster[i]] += 1;
    for (std::size_t j = 0; j < dimensions_; ++j)
      sums[cluster[i] * dimensions_ + j] += rows_[i * dimensions_ + j];
  }
  for (std::size_t k = 0; k < components; ++k) {
    if (sizes[k] <= 0) continue;
    for (std::size_t j = 0; j < dimensions_; ++j)
      centres[k * dimensions_ + j] = sums[k * dimensions_ + j] / sizes[k];
  }
}

Mixture KMeansStart::make(std::size_t components, double ridge, std::uint64_t seed) const {
  std::vector<double> centres = pick_centres(components, seed);
  std::vector<std::size_t> cluster = assign(centres);
  for (int round = 0; round < kLloydRounds; ++round) {
    move_centres(cluster, centres);
    std::vector<std::size_t> next = assign(centres);
    if (next == cluster) break;
    cluster = std::move(next);
  }
  const std::size_t d = dimensions_;
  Mixture start;
  start.dimensions = static_cast<int>(d);
  std::vector<double> pooled(d * d);
  // One row more in each cluster: an empty one keeps some weight.
  std::vector<double> sizes(components, 1);
  std::vector<double> offset(d);
  for (std::size_t i = 0; i < count_; ++i) {
    sizes[cluster[i]] += 1;
    for (std::size_t j = 0; j < d; ++j)
      offset[j] = rows_[i * d + j] - centres[cluster[i] * d + j];
    for (std::size_t a = 0; a < d; ++a) {
      for (std::size_t b = 0; b < d; ++b)
        pooled[a * d + b] += offset[a] * offset[b];
    }
  }
  for (std::size_t a = 0; a < d; ++a) {
    for (std::size_t b = 0; b < d; ++b)
      pooled[a * d + b] *= scale_[a] * scale_[b] / static_cast<double>(count_);
    pooled[a * d + a] += ridge;
  }
  for (std::size_t k = 0; k < components; ++k) {
    start.weights.push_back(sizes[k] / static_cast<double>(count_ + components));
    for (std::size_t j = 0; j < d; ++j)
      start.means.push_back(centres[k * d + j] * scale_[j] + middle_[j]);
    start.covariances.insert(start.covariances.end(), pooled.begin(), pooled.end());
  }
  return start;
}

}  // namespace kansoku::stats::internal
