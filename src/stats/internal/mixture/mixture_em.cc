// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/mixture/mixture_em.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "stats/internal/cholesky.h"
#include "stats/internal/in_order.h"

namespace kansoku::stats::internal {
namespace {

/// Second moments are summed about the mean before the step. A mean that moved by more than this
/// many variances (squared distance) costs more than half of the digits: the sums are made again.
constexpr double kMovedFar = 1e5;
/// Rows whose sums are made by one thread and then added to those before, in the order of the rows:
/// the same rounding for every number of threads. A few milliseconds of work.
constexpr std::size_t kChunkRows = 32 * kBlockRows;

/// Adds up values in an order that depends on their number only, lane by lane.
void add_lanes(std::span<const double> values, std::array<double, kLanes>& lanes) {
  for (std::size_t i = 0; i < values.size(); ++i)
    lanes[i % kLanes] += values[i];
}

void add_to(std::span<const double> values, std::span<double> sums) {
  CHECK(values.size() == sums.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    sums[i] += values[i];
}

std::size_t worker_count(const MixtureOptions& options, std::size_t rows) {
  const std::size_t chunks = (rows + kChunkRows - 1) / kChunkRows;
  return std::min(chunks, static_cast<std::size_t>(options.threads));
}

}  // namespace

MixtureEm::Worker::Worker(std::size_t components, std::size_t dimensions)
    : walker(components, dimensions), sums(components * moment_values(dimensions) * kLanes) {}

MixtureEm::MixtureEm(std::span<const double> rows, Mixture start, const MixtureOptions& options)
    : rows_(rows),
      options_(options),
      dimensions_(static_cast<std::size_t>(start.dimensions)),
      components_(start.weights.size()),
      row_count_(rows.size() / dimensions_),
      mixture_(std::move(start)),
      old_means_(mixture_.means),
      old_covariances_(mixture_.covariances),
      sums_(components_ * moment_values(dimensions_) * kLanes) {
  check_shape(mixture_);
  for (std::size_t i = 0; i < worker_count(options, row_count_); ++i)
    workers_.push_back(std::make_unique<Worker>(components_, dimensions_));
}

KernelModel MixtureEm::model() const {
  return {components_, dimensions_, old_means_.data(), prepared_.inverse_factors.data(),
          prepared_.log_constants.data()};
}

void MixtureEm::walk(const Block& block, const std::function<void(Worker&)>& merge) {
  const auto work = [&](std::size_t index, std::size_t chunk) {
    Worker& worker = *workers_[index];
    std::fill(worker.sums.span().begin(), worker.sums.span().end(), 0.0);
    worker.log_densities.fill(0);
    worker.lowest = std::numeric_limits<double>::infinity();
    const std::size_t end = std::min((chunk + 1) * kChunkRows, row_count_);
    for (std::size_t begin = chunk * kChunkRows; begin < end; begin += kBlockRows) {
      const std::size_t count = std::min(kBlockRows, end - begin);
      worker.walker.load(rows_.subspan(begin * dimensions_, count * dimensions_));
      worker.walker.log_terms(model());
      block(worker, begin, count);
    }
  };
  in_order((row_count_ + kChunkRows - 1) / kChunkRows, workers_.size(), work,
           [&](std::size_t index) { merge(*workers_[index]); });
}

double MixtureEm::pass(bool maximise) {
  const std::size_t d = dimensions_;
  std::array<double, kLanes> total{};
  std::fill(sums_.span().begin(), sums_.span().end(), 0.0);
  const auto block = [&](Worker& worker, std::size_t, std::size_t) {
    add_lanes(maximise ? worker.walker.normalise() : worker.walker.log_sums(),
              worker.log_densities);
    if (!maximise) return;
    for (std::size_t k = 0; k < components_; ++k) {
      worker.walker.add_moments(k, std::span(old_means_).subspan(k * d, d),
                                worker.sums.data() + k * moment_values(d) * kLanes);
    }
  };
  walk(block, [&](Worker& worker) {
    add_lanes(worker.log_densities, total);
    if (maximise) add_to(worker.sums.span(), sums_.span());
  });
  double sum = 0;
  for (const double lane : total)
    sum += lane;
  return sum;
}

double MixtureEm::lane_sum(std::size_t component, std::size_t value) const {
  const std::size_t begin = (component * moment_values(dimensions_) + value) * kLanes;
  double sum = 0;
  for (const double lane : sums_.span().subspan(begin, kLanes))
    sum += lane;
  return sum;
}

bool MixtureEm::update_component(std::size_t component, std::span<const double> shift) {
  const std::size_t d = dimensions_;
  const double weight = lane_sum(component, 0);
  std::vector<double> moved(d);
  for (std::size_t j = 0; j < d; ++j) {
    moved[j] = lane_sum(component, 1 + j) / weight;
    mixture_.means[component * d + j] = shift[j] + moved[j];
  }
  double* covariance = mixture_.covariances.data() + component * d * d;
  bool precise = true;
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double moment = lane_sum(component, 1 + d + triangle(i) + j) / weight;
      double value = moment - moved[i] * moved[j];
      if (i == j) {
        value = std::max(value, 0.0) + options_.ridge;
        if (moved[i] * moved[i] > kMovedFar * value) precise = false;
      }
      covariance[i * d + j] = value;
      covariance[j * d + i] = value;
    }
  }
  return precise;
}

void MixtureEm::sum_again(std::size_t component) {
  const std::size_t d = dimensions_;
  const std::vector<double> shift(
      mixture_.means.begin() + static_cast<std::ptrdiff_t>(component * d),
      mixture_.means.begin() + static_cast<std::ptrdiff_t>((component + 1) * d));
  const auto sums =
      sums_.span().subspan(component * moment_values(d) * kLanes, moment_values(d) * kLanes);
  std::fill(sums.begin(), sums.end(), 0.0);
  const auto block = [&](Worker& worker, std::size_t, std::size_t) {
    static_cast<void>(worker.walker.normalise());
    worker.walker.add_moments(component, shift, worker.sums.data());
  };
  walk(block, [&](Worker& worker) { add_to(worker.sums.span().first(sums.size()), sums); });
  // A second time would change nothing: the mean moves by rounding only.
  static_cast<void>(update_component(component, shift));
}

void MixtureEm::mend_covariance(std::size_t component) {
  const std::size_t d = dimensions_;
  const std::span<double> covariance(mixture_.covariances.data() + component * d * d, d * d);
  if (make_definite(covariance, d)) return;
  std::copy_n(old_covariances_.data() + component * d * d, d * d, covariance.data());
}

void MixtureEm::move_to_least_dense(std::size_t component) {
  const std::size_t d = dimensions_;
  double lowest = std::numeric_limits<double>::infinity();
  std::size_t row = 0;
  const auto block = [](Worker& worker, std::size_t first, std::size_t count) {
    const std::span<const double> densities = worker.walker.log_sums();
    for (std::size_t i = 0; i < count; ++i) {
      if (densities[i] >= worker.lowest) continue;
      worker.lowest = densities[i];
      worker.lowest_row = first + i;
    }
  };
  walk(block, [&](const Worker& worker) {
    if (worker.lowest >= lowest) return;
    lowest = worker.lowest;
    row = worker.lowest_row;
  });
  // As wide as the others are on average: its own covariance belongs to the place it left.
  std::vector<double> average(d * d);
  for (std::size_t k = 0; k < components_; ++k) {
    if (k == component) continue;
    for (std::size_t i = 0; i < d * d; ++i)
      average[i] += mixture_.weights[k] * mixture_.covariances[k * d * d + i];
  }
  std::copy(average.begin(), average.end(), mixture_.covariances.data() + component * d * d);
  std::copy_n(rows_.data() + row * d, d, mixture_.means.data() + component * d);
  mixture_.weights[component] = 1 / static_cast<double>(row_count_);
}

void MixtureEm::maximise() {
  const std::size_t d = dimensions_;
  std::optional<std::size_t> lost;
  for (std::size_t k = 0; k < components_; ++k) {
    const double weight = lane_sum(k, 0);
    mixture_.weights[k] = weight / static_cast<double>(row_count_);
    if (weight < kWeightLost) {
      // One is moved a step: a second one would go to the same row.
      if (!lost) lost = k;
      continue;
    }
    if (!update_component(k, std::span(old_means_).subspan(k * d, d))) sum_again(k);
    mend_covariance(k);
  }
  if (lost) {
    move_to_least_dense(*lost);
    mend_covariance(*lost);
  }
  double sum = 0;
  for (const double weight : mixture_.weights)
    sum += weight;
  for (double& weight : mixture_.weights)
    weight /= sum;
}

Result<MixtureFit> MixtureEm::run() {
  for (std::size_t k = 0; k < components_; ++k)
    mend_covariance(k);
  MixtureFit fit;
  double before = -std::numeric_limits<double>::infinity();
  for (;;) {
    if (const auto failed = prepare(mixture_, prepared_)) {
      // Only a start can fail: a step takes the old covariance back.
      return Error{Code::kCorrupt,
                   fmt::format("fit mixture: covariance of component {} is not positive definite",
                               failed->component),
                   "scale the features, drop constant ones or raise the ridge"};
    }
    old_means_ = mixture_.means;
    old_covariances_ = mixture_.covariances;
    const bool last = fit.iterations >= options_.iterations_max;
    fit.log_likelihood = pass(!last);
    if (last) break;
    maximise();
    ++fit.iterations;
    const double mean = fit.log_likelihood / static_cast<double>(row_count_);
    const bool settled = options_.tolerance > 0 && mean - before < options_.tolerance;
    before = mean;
    if (!settled) continue;
    CHECK(!prepare(mixture_, prepared_));
    old_means_ = mixture_.means;
    fit.log_likelihood = pass(false);
    break;
  }
  const auto k = static_cast<double>(components_);
  const auto d = static_cast<double>(dimensions_);
  const double parameters = (k - 1) + k * d + k * d * (d + 1) / 2;
  fit.bic = parameters * std::log(static_cast<double>(row_count_)) - 2 * fit.log_likelihood;
  fit.mixture = std::move(mixture_);
  return fit;
}

}  // namespace kansoku::stats::internal
