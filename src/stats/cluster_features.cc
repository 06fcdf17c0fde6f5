// SPDX-License-Identifier: Apache-2.0
#include "stats/cluster_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "stats/internal/cholesky.h"
#include "stats/internal/marginal_likelihood.h"
#include "stats/internal/neighbours.h"

namespace kansoku::stats {
namespace {

using internal::kSlotsPerBlock;
using internal::triangle;

constexpr double kCostMax = 1e30;
constexpr float kFree = std::numeric_limits<float>::infinity();
constexpr float kUnknown = std::numeric_limits<float>::lowest();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

bool allowed(double value) {
  return std::abs(value) <= ClusterFeatures::kMagnitudeMax;  // NaN is not
}

}  // namespace

ClusterFeatures::ClusterFeatures(std::size_t dimensions, std::size_t clusters)
    : dimensions_(dimensions),
      capacity_(clusters),
      stride_((clusters + kSlotsPerBlock) / kSlotsPerBlock * kSlotsPerBlock) {}

Result<ClusterFeatures> ClusterFeatures::make(int dimensions, std::size_t clusters) {
  if (dimensions < 1 || dimensions > kDimensionsMax) {
    return Error{Code::kLimit, fmt::format("summarise rows: {} dimensions, not 1 to {}", dimensions,
                                           kDimensionsMax)};
  }
  const auto d = static_cast<std::size_t>(dimensions);
  if (clusters < 1 || clusters > kScatterValuesMax / triangle(d)) {
    return Error{Code::kLimit,
                 fmt::format("summarise rows: {} clusters of {} dimensions, not 1 to {}", clusters,
                             dimensions, kScatterValuesMax / triangle(d))};
  }
  return ClusterFeatures(d, clusters);
}

std::size_t ClusterFeatures::take_slot() {
  if (!free_.empty()) {
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (used_ == 0) {  // the first one: an empty summary costs nothing
    points_.resize(dimensions_ * stride_);
    inverse_rows_.resize(stride_, kFree);
    costs_.resize(stride_, kFree);
    nearest_.resize(stride_, kNone);
    nearest_version_.resize(stride_);
    versions_.resize(stride_);
    scratch_.resize(triangle(dimensions_));
    work_.resize(triangle(dimensions_));
    // Shared by copies: it does not change.
    likelihood_ = std::make_shared<const internal::MarginalLikelihood>(dimensions_);
  }
  const std::size_t slot = used_++;
  counts_.resize(used_);
  likelihoods_.resize(used_);
  means_.resize(used_ * dimensions_);
  scatters_.resize(used_ * triangle(dimensions_));
  return slot;
}

void ClusterFeatures::place_point(std::size_t slot) {
  for (std::size_t j = 0; j < dimensions_; ++j)
    points_[j * stride_ + slot] = static_cast<float>(means_[slot * dimensions_ + j]);
  inverse_rows_[slot] = 1 / static_cast<float>(counts_[slot]);
  versions_[slot] = ++version_;
  nearest_[slot] = kNone;  // to be found when it matters
  costs_[slot] = kUnknown;
  likelihoods_[slot] = likelihood_->of(
      counts_[slot],
      std::span(scatters_).subspan(slot * triangle(dimensions_), triangle(dimensions_)), work_);
}

void ClusterFeatures::put(std::uint64_t rows, std::span<const double> mean,
                          std::span<const double> scatter) {
  const std::size_t slot = take_slot();
  counts_[slot] = rows;
  std::copy(mean.begin(), mean.end(),
            means_.begin() + static_cast<std::ptrdiff_t>(slot * dimensions_));
  const auto begin = scatters_.begin() + static_cast<std::ptrdiff_t>(slot * triangle(dimensions_));
  if (scatter.empty()) {
    std::fill_n(begin, triangle(dimensions_), 0.0);
  } else {
    std::copy(scatter.begin(), scatter.end(), begin);
  }
  place_point(slot);
  rows_ += rows;
  if (++live_ > capacity_) merge_cheapest();
}

Result<void> ClusterFeatures::add(std::span<const double> row) {
  CHECK(row.size() == dimensions_);
  const auto bad = std::find_if_not(row.begin(), row.end(), allowed);
  if (bad != row.end())
    return Error{Code::kCorrupt,
                 fmt::format("summarise rows: feature {} is {}", bad - row.begin(), *bad)};
  put(1, row, {});
  return {};
}

Result<void> ClusterFeatures::merge(const ClusterFeatures& other) {
  if (other.dimensions_ != dimensions_) {
    return Error{Code::kUnsupported, fmt::format("merge summaries: {} dimensions into {}",
                                                 other.dimensions_, dimensions_)};
  }
  if (other.rows_ > kRowsMax - rows_) {
    return Error{Code::kLimit, fmt::format("merge summaries: {} rows and {}", rows_, other.rows_)};
  }
  if (&other == this) {
    // A merge changes the clusters that it reads from.
    const ClusterFeatures copy(other);  // NOLINT(performance-unnecessary-copy-initialization)
    return merge(copy);
  }
  for (const Cluster& cluster : other.clusters())
    put(cluster.rows, cluster.mean, cluster.scatter);
  return {};
}

void ClusterFeatures::find_nearest(std::size_t slot) {
  std::vector<float> query(dimensions_);
  for (std::size_t j = 0; j < dimensions_; ++j)
    query[j] = points_[j * stride_ + slot];
  const internal::Neighbours found = internal::cheapest_unions(
      {points_.data(), inverse_rows_.data(), dimensions_, stride_}, query.data(), slot);
  CHECK(found.count > 0);
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = found.slots[0];
  for (std::size_t i = 0; i < found.count; ++i) {
    const std::size_t other = found.slots[i];
    unite_scatter(slot, other);
    const double together = likelihood_->of(counts_[slot] + counts_[other], scratch_, work_);
    const double lost = likelihoods_[slot] + likelihoods_[other] - together;
    if (lost >= least) continue;
    least = lost;
    best = other;
  }
  costs_[slot] = static_cast<float>(std::clamp(least, -kCostMax, kCostMax));
  nearest_[slot] = static_cast<std::uint32_t>(best);
  nearest_version_[slot] = versions_[best];
}

// A neighbour that grew since has seldom become cheaper, so a cost is looked at again only when it
// is the least of all. The pair of an old cluster and a newer one is found from the newer one.
void ClusterFeatures::merge_cheapest() {
  for (;;) {
    const std::size_t slot = internal::lowest(costs_.data(), stride_);
    CHECK(counts_[slot] > 0);
    const std::uint32_t other = nearest_[slot];
    if (other != kNone && versions_[other] == nearest_version_[slot] && counts_[other] > 0) {
      join(std::min<std::size_t>(slot, other), std::max<std::size_t>(slot, other));
      return;
    }
    find_nearest(slot);
  }
}

void ClusterFeatures::unite_scatter(std::size_t into, std::size_t from) {
  const auto a = static_cast<double>(counts_[into]), b = static_cast<double>(counts_[from]);
  const double* const mean = means_.data() + into * dimensions_;
  const double* const other = means_.data() + from * dimensions_;
  const double* const scatter = scatters_.data() + into * triangle(dimensions_);
  const double* const other_scatter = scatters_.data() + from * triangle(dimensions_);
  double* const out = scratch_.data();
  const double share = a * b / (a + b);
  std::size_t at = 0;
  for (std::size_t i = 0; i < dimensions_; ++i) {
    const double across = share * (other[i] - mean[i]);
    for (std::size_t j = 0; j <= i; ++j, ++at)
      out[at] = scatter[at] + other_scatter[at] + across * (other[j] - mean[j]);
  }
}

void ClusterFeatures::join(std::size_t into, std::size_t from) {
  unite_scatter(into, from);
  std::copy(scratch_.begin(), scratch_.end(),
            scatters_.begin() + static_cast<std::ptrdiff_t>(into * triangle(dimensions_)));
  const auto a = static_cast<double>(counts_[into]), b = static_cast<double>(counts_[from]);
  double* const mean = means_.data() + into * dimensions_;
  const double* const other = means_.data() + from * dimensions_;
  for (std::size_t j = 0; j < dimensions_; ++j)
    mean[j] += b / (a + b) * (other[j] - mean[j]);
  counts_[into] += counts_[from];
  counts_[from] = 0;
  inverse_rows_[from] = kFree;
  costs_[from] = kFree;
  free_.push_back(from);
  --live_;
  place_point(into);
}

void ClusterFeatures::reduce(std::size_t clusters) {
  while (live_ > std::max<std::size_t>(1, clusters))
    merge_cheapest();
}

void ClusterFeatures::reduce_to_bytes(std::size_t bytes) {
  while (live_ > 1 && encoded_bytes_max() > bytes)
    merge_cheapest();
}

std::vector<ClusterFeatures::Cluster> ClusterFeatures::clusters() const {
  std::vector<Cluster> out;
  out.reserve(live_);
  for (std::size_t slot = 0; slot < used_; ++slot) {
    if (counts_[slot] == 0) continue;
    out.push_back(
        {counts_[slot], std::span(means_).subspan(slot * dimensions_, dimensions_),
         std::span(scatters_).subspan(slot * triangle(dimensions_), triangle(dimensions_))});
  }
  return out;
}

}  // namespace kansoku::stats
