// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "stats/cluster_features.h"
#include "stats/internal/cholesky.h"
#include "stats/internal/mixture/mixture_blocks.h"
#include "stats/internal/mixture/mixture_em.h"
#include "stats/internal/mixture/mixture_start.h"

namespace kansoku::stats {
namespace {

using internal::kWeightLost;
using internal::triangle;
using Cluster = ClusterFeatures::Cluster;

/// EM whose rows are clusters. One use: `run`.
class ClusterEm {
 public:
  ClusterEm(std::vector<Cluster> clusters, Mixture start, const MixtureOptions& options)
      : clusters_(std::move(clusters)),
        options_(options),
        d_(static_cast<std::size_t>(start.dimensions)),
        mixture_(std::move(start)),
        shares_(clusters_.size() * mixture_.weights.size()),
        densities_(clusters_.size()) {
    for (const Cluster& cluster : clusters_)
      rows_ += static_cast<double>(cluster.rows);
  }

  [[nodiscard]] Result<MixtureFit> run();

 private:
  [[nodiscard]] double expect();
  void maximise();
  void update_component(std::size_t k, double weight);
  void move_to_least_dense(std::size_t k);
  void make_precisions();
  /// Expected log of weight times density of the component over the cluster, per row.
  [[nodiscard]] double log_term(const Cluster& cluster, std::size_t k,
                                std::vector<double>& offset) const;

  std::vector<Cluster> clusters_;
  const MixtureOptions& options_;
  std::size_t d_;
  double rows_{0};
  Mixture mixture_;
  internal::PreparedMixture prepared_;
  std::vector<double> precisions_;  // k packed lower triangles, what is off the diagonal doubled
  std::vector<double> shares_;      // clusters x k: responsibilities
  std::vector<double> densities_;   // of each cluster, per row
};

void ClusterEm::make_precisions() {
  const std::size_t components = mixture_.weights.size();
  precisions_.assign(components * triangle(d_), 0.0);
  for (std::size_t k = 0; k < components; ++k) {
    const double* const factor = prepared_.inverse_factors.data() + k * triangle(d_);
    double* const precision = precisions_.data() + k * triangle(d_);
    for (std::size_t row = 0; row < d_; ++row) {
      const double* const values = factor + triangle(row);
      for (std::size_t i = 0; i <= row; ++i) {
        for (std::size_t j = 0; j <= i; ++j)
          precision[triangle(i) + j] += values[i] * values[j] * (i == j ? 1 : 2);
      }
    }
  }
}

double ClusterEm::log_term(const Cluster& cluster, std::size_t k,
                           std::vector<double>& offset) const {
  const double* const mean = mixture_.means.data() + k * d_;
  for (std::size_t j = 0; j < d_; ++j)
    offset[j] = cluster.mean[j] - mean[j];
  const double* factor = prepared_.inverse_factors.data() + k * triangle(d_);
  double square = 0;
  for (std::size_t i = 0; i < d_; ++i, factor += i) {
    double value = 0;
    for (std::size_t j = 0; j <= i; ++j)
      value += factor[j] * offset[j];
    square += value * value;
  }
  if (cluster.rows > 1) {
    const double* const precision = precisions_.data() + k * triangle(d_);
    double trace = 0;
    for (std::size_t i = 0; i < triangle(d_); ++i)
      trace += precision[i] * cluster.scatter[i];
    square += trace / static_cast<double>(cluster.rows);
  }
  return std::max(prepared_.log_constants[k] - 0.5 * square, internal::kLogFloor);
}

double ClusterEm::expect() {
  const std::size_t components = mixture_.weights.size();
  std::vector<double> offset(d_);
  double total = 0;
  for (std::size_t i = 0; i < clusters_.size(); ++i) {
    double* const shares = shares_.data() + i * components;
    double highest = -std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < components; ++k) {
      shares[k] = log_term(clusters_[i], k, offset);
      highest = std::max(highest, shares[k]);
    }
    double sum = 0;
    for (std::size_t k = 0; k < components; ++k)
      sum += shares[k] = std::exp(shares[k] - highest);
    for (std::size_t k = 0; k < components; ++k)
      shares[k] /= sum;
    densities_[i] = highest + std::log(sum);
    total += static_cast<double>(clusters_[i].rows) * densities_[i];
  }
  return total;
}

void ClusterEm::update_component(std::size_t k, double weight) {
  const std::size_t components = mixture_.weights.size();
  double* const mean = mixture_.means.data() + k * d_;
  std::fill_n(mean, d_, 0.0);
  for (std::size_t i = 0; i < clusters_.size(); ++i) {
    const double share =
        shares_[i * components + k] * static_cast<double>(clusters_[i].rows) / weight;
    for (std::size_t j = 0; j < d_; ++j)
      mean[j] += share * clusters_[i].mean[j];
  }
  std::vector<double> sums(triangle(d_));
  std::vector<double> offset(d_);
  for (std::size_t i = 0; i < clusters_.size(); ++i) {
    const Cluster& cluster = clusters_[i];
    const double share = shares_[i * components + k] / weight;
    const double rows = share * static_cast<double>(cluster.rows);
    for (std::size_t j = 0; j < d_; ++j)
      offset[j] = cluster.mean[j] - mean[j];
    std::size_t at = 0;
    for (std::size_t a = 0; a < d_; ++a) {
      for (std::size_t b = 0; b <= a; ++b, ++at)
        sums[at] += share * cluster.scatter[at] + rows * offset[a] * offset[b];
    }
  }
  const std::span<double> covariance(mixture_.covariances.data() + k * d_ * d_, d_ * d_);
  const std::vector<double> before(covariance.begin(), covariance.end());
  for (std::size_t a = 0; a < d_; ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      const double value = sums[triangle(a) + b] + (a == b ? options_.ridge : 0);
      covariance[a * d_ + b] = value;
      covariance[b * d_ + a] = value;
    }
  }
  if (!internal::make_definite(covariance, d_))
    std::copy(before.begin(), before.end(), covariance.begin());
}

void ClusterEm::move_to_least_dense(std::size_t k) {
  const auto least = std::min_element(densities_.begin(), densities_.end());
  const Cluster& cluster = clusters_[static_cast<std::size_t>(least - densities_.begin())];
  std::copy(cluster.mean.begin(), cluster.mean.end(), mixture_.means.data() + k * d_);
  double* const covariance = mixture_.covariances.data() + k * d_ * d_;
  std::fill_n(covariance, d_ * d_, 0.0);
  for (std::size_t other = 0; other < mixture_.weights.size(); ++other) {
    if (other == k) continue;
    for (std::size_t i = 0; i < d_ * d_; ++i)
      covariance[i] += mixture_.weights[other] * mixture_.covariances[other * d_ * d_ + i];
  }
  mixture_.weights[k] = static_cast<double>(cluster.rows) / rows_;
  // An average of definite ones, but for rounding.
  static_cast<void>(internal::make_definite({covariance, d_ * d_}, d_));
}

void ClusterEm::maximise() {
  const std::size_t components = mixture_.weights.size();
  std::optional<std::size_t> lost;
  for (std::size_t k = 0; k < components; ++k) {
    double weight = 0;
    for (std::size_t i = 0; i < clusters_.size(); ++i)
      weight += shares_[i * components + k] * static_cast<double>(clusters_[i].rows);
    mixture_.weights[k] = weight / rows_;
    if (weight >= kWeightLost) {
      update_component(k, weight);
    } else if (!lost) {
      lost = k;  // one a step: a second one would go to the same cluster
    }
  }
  if (lost) move_to_least_dense(*lost);
  double sum = 0;
  for (const double weight : mixture_.weights)
    sum += weight;
  for (double& weight : mixture_.weights)
    weight /= sum;
}

Result<MixtureFit> ClusterEm::run() {
  MixtureFit fit;
  double before = -std::numeric_limits<double>::infinity();
  for (bool last = false;;) {
    if (const auto failed = internal::prepare(mixture_, prepared_)) {
      return Error{Code::kCorrupt,
                   fmt::format("fit mixture: covariance of component {} is not positive definite",
                               failed->component),
                   "scale the features, drop constant ones or raise the ridge"};
    }
    make_precisions();
    fit.log_likelihood = expect();
    if (last || fit.iterations >= options_.iterations_max) break;
    maximise();
    ++fit.iterations;
    const double mean = fit.log_likelihood / rows_;
    last = options_.tolerance > 0 && mean - before < options_.tolerance;
    before = mean;
  }
  const auto k = static_cast<double>(mixture_.weights.size());
  const auto d = static_cast<double>(d_);
  const double parameters = (k - 1) + k * d + k * d * (d + 1) / 2;
  fit.bic = parameters * std::log(rows_) - 2 * fit.log_likelihood;
  fit.mixture = std::move(mixture_);
  return fit;
}

/// The means of the clusters, each as often as its share of the rows says (and so not at all where
/// it is small): what the k-means++ of plain rows can start from.
std::vector<double> repeated_means(const std::vector<Cluster>& clusters, double rows,
                                   std::size_t d) {
  constexpr double kRepeated = 16'384;
  const double step = std::max(1.0, rows / kRepeated);
  std::vector<double> out;
  double passed = 0, next = 0.5 * step;
  for (const Cluster& cluster : clusters) {
    passed += static_cast<double>(cluster.rows);
    for (; next < passed; next += step)
      out.insert(out.end(), cluster.mean.begin(), cluster.mean.end());
  }
  if (out.size() < d) out.assign(clusters[0].mean.begin(), clusters[0].mean.end());
  return out;
}

/// Adds what is inside the clusters, averaged over all rows, to the covariances of a start.
void add_scatter(const std::vector<Cluster>& clusters, double rows, Mixture& start) {
  const auto d = static_cast<std::size_t>(start.dimensions);
  std::vector<double> average(triangle(d));
  for (const Cluster& cluster : clusters) {
    for (std::size_t i = 0; i < average.size(); ++i)
      average[i] += cluster.scatter[i] / rows;
  }
  for (std::size_t k = 0; k < start.weights.size(); ++k) {
    const std::span<double> covariance(start.covariances.data() + k * d * d, d * d);
    for (std::size_t a = 0; a < d; ++a) {
      for (std::size_t b = 0; b < d; ++b)
        covariance[a * d + b] += average[triangle(std::max(a, b)) + std::min(a, b)];
    }
    // One that cannot be mended is reported by the fit.
    static_cast<void>(internal::make_definite(covariance, d));
  }
}

Result<void> check(const ClusterFeatures& features, const MixtureOptions& options) {
  if (options.components < 1 || options.components > internal::kComponentsMax) {
    return Error{Code::kLimit, fmt::format("fit mixture: {} components, not 1 to {}",
                                           options.components, internal::kComponentsMax)};
  }
  if (features.size() < static_cast<std::size_t>(options.components)) {
    return Error{Code::kLimit, fmt::format("fit mixture: {} clusters are too few for {} components",
                                           features.size(), options.components)};
  }
  if (!(options.ridge >= 0) || !std::isfinite(options.ridge))
    return Error{Code::kCorrupt, "fit mixture: the ridge has to be finite and not negative"};
  if (options.start != MixtureOptions::Start::kKMeansPlusPlus)
    return Error{Code::kUnsupported, "fit mixture: quantiles of a summary", "start with k-means++"};
  return {};
}

}  // namespace

Result<MixtureFit> fit_mixture(const ClusterFeatures& features, const MixtureOptions& options) {
  TRY_VOID(check(features, options));
  const std::vector<Cluster> clusters = features.clusters();
  const auto d = static_cast<std::size_t>(features.dimensions());
  const auto rows = static_cast<double>(features.rows());
  const std::vector<double> means = repeated_means(clusters, rows, d);
  const internal::KMeansStart starts(means, d);
  std::optional<MixtureFit> best;
  for (int i = 0; i < std::max(1, options.starts); ++i) {
    Mixture start = starts.make(static_cast<std::size_t>(options.components), options.ridge,
                                options.seed + static_cast<std::uint64_t>(i));
    add_scatter(clusters, rows, start);
    TRY(MixtureFit fit, ClusterEm(clusters, std::move(start), options).run());
    if (!best || fit.log_likelihood > best->log_likelihood) best = std::move(fit);
  }
  return *std::move(best);
}

Result<MixtureFit> refine_mixture(const ClusterFeatures& features, Mixture start,
                                  const MixtureOptions& options) {
  internal::check_shape(start);
  if (start.dimensions != features.dimensions()) {
    return Error{Code::kUnsupported, fmt::format("refine mixture: {} dimensions on a summary of {}",
                                                 start.dimensions, features.dimensions())};
  }
  MixtureOptions used = options;
  used.components = start.components();
  used.start = MixtureOptions::Start::kKMeansPlusPlus;  // not used: others would be refused
  TRY_VOID(check(features, used));
  return ClusterEm(features.clusters(), std::move(start), used).run();
}

}  // namespace kansoku::stats
