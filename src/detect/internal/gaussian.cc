// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/gaussian.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "detect/thresholds.h"

namespace kansoku::detect {
namespace {

constexpr int kSweeps = 100;

/// The inverse of a symmetric positive definite matrix by Gauss-Jordan without pivoting, and the
/// log of its determinant. False if a pivot is not positive.
bool invert(std::vector<double>& a, std::size_t d, double& log_determinant) {
  log_determinant = 0;
  for (std::size_t k = 0; k < d; ++k) {
    const double pivot = a[k * d + k];
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    log_determinant += std::log(pivot);
    a[k * d + k] = 1;
    for (std::size_t j = 0; j < d; ++j)
      a[k * d + j] /= pivot;
    for (std::size_t i = 0; i < d; ++i) {
      if (i == k) continue;
      const double factor = a[i * d + k];
      a[i * d + k] = 0;
      for (std::size_t j = 0; j < d; ++j)
        a[i * d + j] -= factor * a[k * d + j];
    }
  }
  return true;
}

struct Component {
  double weight{0};
  std::vector<double> mean, covariance;
  double log_determinant{0};
};

double log_determinant_of(std::vector<double> covariance, std::size_t d) {
  double out = 0;
  return invert(covariance, d, out) ? out : std::numeric_limits<double>::infinity();
}

Component join(const Component& a, const Component& b, std::size_t d) {
  Component out;
  out.weight = a.weight + b.weight;
  const double share = b.weight / out.weight;
  out.mean.resize(d);
  out.covariance.resize(d * d);
  for (std::size_t i = 0; i < d; ++i)
    out.mean[i] = a.mean[i] + share * (b.mean[i] - a.mean[i]);
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j < d; ++j) {
      const double between = (b.mean[i] - a.mean[i]) * (b.mean[j] - a.mean[j]);
      out.covariance[i * d + j] = (1 - share) * a.covariance[i * d + j] +
                                  share * b.covariance[i * d + j] + share * (1 - share) * between;
    }
  }
  out.log_determinant = log_determinant_of(out.covariance, d);
  return out;
}

std::vector<Component> split(const stats::Mixture& mixture) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  std::vector<Component> out;
  for (std::size_t k = 0; k < mixture.weights.size(); ++k) {
    const double* mean = &mixture.means[k * d];
    const double* covariance = &mixture.covariances[k * d * d];
    Component one{mixture.weights[k], {mean, mean + d}, {covariance, covariance + d * d}, 0};
    one.log_determinant = log_determinant_of(one.covariance, d);
    out.push_back(std::move(one));
  }
  return out;
}

/// Means of the values left out, given the rest: the minimum of the distance over them, found by
/// Gauss-Seidel, which converges for every positive definite matrix.
void expect(const std::vector<double>& precision, std::vector<double> difference,
            const double* mean, std::vector<Removal>& removed) {
  const std::size_t d = difference.size();
  for (const Removal& one : removed)
    difference[one.index] = 0;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (const Removal& one : removed) {
      double pull = 0;
      for (std::size_t j = 0; j < d; ++j)
        pull += j == one.index ? 0 : precision[one.index * d + j] * difference[j];
      difference[one.index] = -pull / precision[one.index * d + one.index];
    }
  }
  for (Removal& one : removed)
    one.expected = mean[one.index] + difference[one.index];
}

}  // namespace

stats::Mixture marginal(const stats::Mixture& mixture, std::span<const std::size_t> dimensions) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  stats::Mixture out;
  out.dimensions = static_cast<int>(dimensions.size());
  out.weights = mixture.weights;
  for (std::size_t k = 0; k < mixture.weights.size(); ++k) {
    for (const std::size_t i : dimensions) {
      out.means.push_back(mixture.means[k * d + i]);
      for (const std::size_t j : dimensions)
        out.covariances.push_back(mixture.covariances[(k * d + i) * d + j]);
    }
  }
  return out;
}

std::vector<Removal> explain_in_mode(const stats::Mixture& mixture, std::size_t mode,
                                     std::span<const double> row, std::size_t count) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  std::vector<double> precision(
      mixture.covariances.begin() + static_cast<std::ptrdiff_t>(mode * d * d),
      mixture.covariances.begin() + static_cast<std::ptrdiff_t>((mode + 1) * d * d));
  double log_determinant = 0;
  if (!invert(precision, d, log_determinant)) return {};
  const std::vector<double> whole = precision;
  std::vector<double> difference(d);
  for (std::size_t i = 0; i < d; ++i)
    difference[i] = row[i] - mixture.means[mode * d + i];
  std::vector<bool> is_gone(d, false);
  std::vector<Removal> out;
  while (out.size() < std::min(count, d)) {
    Removal best;
    for (std::size_t i = 0; i < d; ++i) {
      if (is_gone[i] || !(precision[i * d + i] > 0)) continue;
      double pull = 0;  // (precision x difference)_i
      for (std::size_t j = 0; j < d; ++j)
        pull += is_gone[j] ? 0 : precision[i * d + j] * difference[j];
      const double drop = 0.5 * pull * pull / precision[i * d + i];
      if (drop > best.drop) best = {i, drop, 0};
    }
    if (best.drop < kDropMin) break;
    is_gone[best.index] = true;
    out.push_back(best);
    const double pivot = precision[best.index * d + best.index];
    std::vector<double> column(d);
    for (std::size_t i = 0; i < d; ++i)
      column[i] = precision[i * d + best.index];
    for (std::size_t i = 0; i < d; ++i)
      for (std::size_t j = 0; j < d; ++j)
        precision[i * d + j] -= column[i] * column[j] / pivot;
  }
  expect(whole, difference, &mixture.means[mode * d], out);
  return out;
}

stats::Mixture reduce(const stats::Mixture& mixture, std::size_t components_max) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  std::vector<Component> parts = split(mixture);
  while (parts.size() > std::max<std::size_t>(1, components_max)) {
    std::size_t first = 0, second = 1;
    double least = std::numeric_limits<double>::infinity();
    Component best;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::size_t j = i + 1; j < parts.size(); ++j) {
        Component joined = join(parts[i], parts[j], d);
        const double cost = 0.5 * (joined.weight * joined.log_determinant -
                                   parts[i].weight * parts[i].log_determinant -
                                   parts[j].weight * parts[j].log_determinant);
        if (best.mean.empty() || cost < least) {
          least = cost;
          first = i;
          second = j;
          best = std::move(joined);
        }
      }
    }
    parts[first] = std::move(best);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(second));
  }
  stats::Mixture out;
  out.dimensions = mixture.dimensions;
  double sum = 0;
  for (const Component& part : parts)
    sum += part.weight;
  for (const Component& part : parts) {
    out.weights.push_back(part.weight / sum);
    out.means.insert(out.means.end(), part.mean.begin(), part.mean.end());
    out.covariances.insert(out.covariances.end(), part.covariance.begin(), part.covariance.end());
  }
  return out;
}

}  // namespace kansoku::detect
