// SPDX-License-Identifier: Apache-2.0
#include "diagnose/localise_patterns.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "common/check.h"
#include "common/rng.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

float median_of(std::vector<float>& scratch) {
  if (scratch.empty()) return 0;
  const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>(scratch.size() / 2);
  std::nth_element(scratch.begin(), middle, scratch.end());
  return *middle;
}

/// One function over all ranks.
class FunctionComparison {
 public:
  FunctionComparison(const PatternMatrix& matrix, const LocaliseOptions& options)
      : matrix_(matrix), options_(options) {
    scaled_.resize(3 * matrix.rank_count);
    counts_.resize(matrix.rank_count);
  }

  void compare(std::uint32_t function, std::vector<PatternOutlier>& out);

 private:
  void scale(const float* values, float* scaled) const;
  void count_differences(std::uint32_t function);
  void draw_peers(std::uint32_t function);
  [[nodiscard]] float median(const float* values);

  const PatternMatrix& matrix_;
  const LocaliseOptions& options_;
  std::vector<float> scaled_;  // beta, mu, sigma, one after the other
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> peers_;
  std::vector<float> scratch_;
};

void FunctionComparison::scale(const float* values, float* scaled) const {
  float most = 0;
  for (std::size_t r = 0; r < matrix_.rank_count; ++r)
    most = std::max(most, std::abs(values[r]));
  const float factor = most > 0 ? 1 / most : 0;
  for (std::size_t r = 0; r < matrix_.rank_count; ++r)
    scaled[r] = values[r] * factor;
}

float FunctionComparison::median(const float* values) {
  scratch_.assign(values, values + matrix_.rank_count);
  return median_of(scratch_);
}

void FunctionComparison::draw_peers(std::uint32_t function) {
  peers_.clear();
  if (matrix_.rank_count <= options_.peers_max + std::size_t{1}) {
    for (std::uint32_t r = 0; r < matrix_.rank_count; ++r)
      peers_.push_back(r);
    return;
  }
  Rng rng(options_.seed, function);
  for (std::uint32_t i = 0; i < options_.peers_max; ++i)
    peers_.push_back(static_cast<std::uint32_t>(rng.below(matrix_.rank_count)));
}

#ifdef __clang__
#define KANSOKU_VECTORIZED
#else  // -O2 does not go so far
#define KANSOKU_VECTORIZED __attribute__((optimize("O3")))
#endif

/// For every rank the number of peers that differ. Peer by peer, so that the inner loop runs over
/// neighbouring memory. A rank drawn as its own peer counts as alike.
KANSOKU_VECTORIZED void FunctionComparison::count_differences(std::uint32_t function) {
  draw_peers(function);
  std::fill(counts_.begin(), counts_.end(), 0);
  const std::size_t n = matrix_.rank_count;
  const float* const beta = scaled_.data();
  const float* const mu = beta + n;
  const float* const sigma = mu + n;
  const auto limit = static_cast<float>(kPatternDistanceMin);
  std::uint32_t* const counts = counts_.data();
  for (const std::uint32_t peer : peers_) {
    const float peer_beta = beta[peer], peer_mu = mu[peer], peer_sigma = sigma[peer];
    for (std::size_t r = 0; r < n; ++r) {
      const float distance = std::abs(beta[r] - peer_beta) + std::abs(mu[r] - peer_mu) +
                             std::abs(sigma[r] - peer_sigma);
      counts[r] += distance >= limit ? 1U : 0U;
    }
  }
}

void FunctionComparison::compare(std::uint32_t function, std::vector<PatternOutlier>& out) {
  const std::size_t n = matrix_.rank_count;
  const float* const beta = matrix_.beta.data() + function * n;
  const float* const mu = matrix_.mu.data() + function * n;
  const float* const sigma = matrix_.sigma.data() + function * n;
  const float most = *std::max_element(beta, beta + n);
  if (most < static_cast<float>(kPatternBetaMin)) return;
  scale(beta, scaled_.data());
  scale(mu, scaled_.data() + n);
  scale(sigma, scaled_.data() + 2 * n);
  count_differences(function);
  // Peers of a rank are the drawn ones without itself; with all drawn that is one less.
  const bool all_drawn = peers_.size() == n;
  const auto peer_count = static_cast<float>(all_drawn ? n - 1 : peers_.size());
  std::vector<float> shares(n);
  for (std::size_t r = 0; r < n; ++r)
    shares[r] = static_cast<float>(counts_[r]) / peer_count;
  const float middle = median(shares.data());
  scratch_.resize(n);
  for (std::size_t r = 0; r < n; ++r)
    scratch_[r] = std::abs(shares[r] - middle);
  const float floor = 1 / peer_count;
  const float spread = std::max(median_of(scratch_), floor);
  const float limit = std::max(middle + static_cast<float>(kPatternMadMultiple) * spread,
                               static_cast<float>(kMostShare));
  // With few peers the robust limit may lie above 1: then a rank must differ from all of them.
  const float reachable = std::min(limit, 1.0F);
  const float peers_beta = median(beta), peers_mu = median(mu), peers_sigma = median(sigma);
  const float middle_beta = median(scaled_.data()), middle_mu = median(scaled_.data() + n),
              middle_sigma = median(scaled_.data() + 2 * n);
  for (std::uint32_t r = 0; r < n; ++r) {
    if (shares[r] < reachable) continue;
    if (std::max(beta[r], peers_beta) < static_cast<float>(kPatternBetaMin)) continue;
    const float more = beta[r] - peers_beta;
    if (std::abs(more) < static_cast<float>(kPatternExcessMin)) continue;
    const bool is_collective = matrix_.activities[function] == Activity::kCollective;
    out.push_back({.rank = r,
                   .function = function,
                   .differs = shares[r],
                   .distance = std::abs(scaled_[r] - middle_beta) +
                               std::abs(scaled_[n + r] - middle_mu) +
                               std::abs(scaled_[2 * n + r] - middle_sigma),
                   .beta = beta[r],
                   .peers_beta = peers_beta,
                   .mu = mu[r],
                   .peers_mu = peers_mu,
                   .sigma = sigma[r],
                   .peers_sigma = peers_sigma,
                   .is_culprit = is_collective ? more < 0 : more > 0});
  }
}

}  // namespace

std::vector<PatternOutlier> localise(const PatternMatrix& matrix, const LocaliseOptions& options) {
  std::vector<PatternOutlier> all;
  if (matrix.rank_count < kPatternRanksMin || options.peers_max == 0) return all;
  CHECK(matrix.beta.size() == matrix.rank_count * matrix.function_count);
  const std::size_t thread_count = std::clamp<std::size_t>(
      options.thread_count, 1, std::max<std::size_t>(matrix.function_count, 1));
  std::vector<std::vector<PatternOutlier>> found(thread_count);
  const auto work = [&](std::size_t index) {
    FunctionComparison comparison(matrix, options);
    for (std::size_t f = index; f < matrix.function_count; f += thread_count)
      comparison.compare(static_cast<std::uint32_t>(f), found[index]);
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < thread_count; ++i)
    threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& part : found)
    all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end(), [](const PatternOutlier& a, const PatternOutlier& b) {
    const float da = std::abs(a.beta - a.peers_beta), db = std::abs(b.beta - b.peers_beta);
    if (da != db) return da > db;
    return a.function != b.function ? a.function < b.function : a.rank < b.rank;
  });
  return all;
}

}  // namespace kansoku::diagnose
