// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/excess.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "diagnose/thresholds.h"
#include "stats/bootstrap.h"
#include "stats/peers.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

std::vector<double> clip_tails(const std::vector<double>& values, double share) {
  if (share <= 0) return values;
  const double low = stats::quantile(values, share);
  const double high = stats::quantile(values, 1 - share);
  std::vector<double> clipped;
  clipped.reserve(values.size());
  for (const double value : values)
    clipped.push_back(std::clamp(value, low, high));
  return clipped;
}

std::size_t suspect_count_max(std::size_t rank_count) {
  return rank_count < 4 ? 1 : rank_count / 2;
}

// Which ranks may be culprits, by mean excess.
std::vector<std::size_t> suspects(const std::vector<double>& means, const std::vector<bool>& known,
                                  double threshold_ms) {
  std::vector<std::size_t> list;
  for (std::size_t r = 0; r < means.size(); ++r) {
    if (!known[r] && means[r] > threshold_ms) list.push_back(r);
  }
  std::stable_sort(list.begin(), list.end(),
                   [&](std::size_t a, std::size_t b) { return means[a] > means[b]; });
  while (!list.empty() && means[list.back()] < kMostShare * means[list.front()])
    list.pop_back();
  if (list.size() > suspect_count_max(means.size())) list.resize(suspect_count_max(means.size()));
  return list;
}

// The part of healthy jobs in which a rank is slower than all ordinary ones in as many blocks.
double chance_of_blocks(const std::vector<stats::PrefixSums>& sums, std::size_t rank,
                        const std::vector<bool>& is_ordinary, std::size_t step_count) {
  if (step_count < kBlocksMin) return 1;
  const std::size_t block_count = (step_count < 2 * kBlocksMin ? 1 : 2) * kBlocksMin;
  std::uint64_t slowest = 0;
  for (std::size_t b = 0; b < block_count; ++b) {
    const std::size_t begin = b * step_count / block_count;
    const std::array block{stats::Block{begin, (b + 1) * step_count / block_count - begin}};
    double bar = -1e300;
    for (std::size_t r = 0; r < sums.size(); ++r) {
      if (is_ordinary[r]) bar = std::max(bar, sums[r].mean(block));
    }
    slowest += sums[rank].mean(block) > bar ? 1 : 0;
  }
  const auto ordinary =
      static_cast<std::size_t>(std::count(is_ordinary.begin(), is_ordinary.end(), true));
  return static_cast<double>(sums.size()) *
         stats::chance_of_share(slowest, block_count, ordinary + 1);
}

}  // namespace

RankSeries excess_over_peers(const RankSeries& values) {
  RankSeries excess(values.size());
  if (values.empty()) return excess;
  for (auto& rank : excess)
    rank.resize(values.front().size());
  if (values.size() < 2) return excess;
  std::vector<double> ranks(values.size());
  for (std::size_t s = 0; s < values.front().size(); ++s) {
    for (std::size_t r = 0; r < values.size(); ++r)
      ranks[r] = values[r][s];
    const auto peers = stats::leave_one_out(ranks);
    for (std::size_t r = 0; r < values.size(); ++r)
      excess[r][s] = ranks[r] - peers[r].centre;
  }
  return excess;
}

std::vector<Outlier> find_outliers(const RankSeries& excess, const std::vector<bool>& known,
                                   const ExcessOptions& options) {
  if (excess.size() < 2 || excess.front().empty()) return {};
  std::vector<stats::PrefixSums> sums;
  std::vector<double> means;
  for (const auto& rank : excess) {
    const std::vector<double> clipped = clip_tails(rank, options.clip_share);
    sums.emplace_back(clipped);
    means.push_back(stats::mean(clipped));
  }
  const std::vector<std::size_t> list = suspects(means, known, options.threshold_ms);
  if (list.empty()) return {};
  std::vector<bool> is_ordinary(excess.size());
  for (std::size_t r = 0; r < excess.size(); ++r)
    is_ordinary[r] = !known[r] && std::find(list.begin(), list.end(), r) == list.end();

  const std::size_t step_count = excess.front().size();
  stats::BlockBootstrap bootstrap(step_count, stats::default_block_length(step_count),
                                  options.seed);
  std::vector<std::size_t> wins(list.size());
  for (std::uint32_t i = 0; i < options.resample_count; ++i) {
    const auto blocks = bootstrap.draw();
    double bar = options.threshold_ms;
    for (std::size_t r = 0; r < excess.size(); ++r) {
      if (is_ordinary[r]) bar = std::max(bar, sums[r].mean(blocks));
    }
    for (std::size_t k = 0; k < list.size(); ++k)
      wins[k] += sums[list[k]].mean(blocks) > bar ? 1 : 0;
  }
  std::vector<Outlier> found;
  for (std::size_t k = 0; k < list.size(); ++k) {
    const double confidence =
        static_cast<double>(wins[k]) / static_cast<double>(options.resample_count);
    const double chance =
        options.asks_blocks ? chance_of_blocks(sums, list[k], is_ordinary, step_count) : 0;
    if (confidence >= options.confidence_min && chance <= kBlameChanceMax)
      found.push_back({list[k], means[list[k]], std::min(confidence, 1 - chance)});
  }
  return found;
}

RankSeries without(RankSeries values, const RankSeries& more) {
  for (std::size_t r = 0; r < values.size(); ++r) {
    for (std::size_t s = 0; s < values[r].size(); ++s)
      values[r][s] = std::max(values[r][s] - more[r][s], 0.0);
  }
  return values;
}

double mean_of_slowest(const RankSeries& values) {
  std::vector<double> slowest = values.front();
  for (const auto& series : values) {
    for (std::size_t s = 0; s < slowest.size(); ++s)
      slowest[s] = std::max(slowest[s], series[s]);
  }
  return stats::mean(slowest);
}

double concentration(const std::vector<double>& excess) {
  std::vector<double> positive;
  positive.reserve(excess.size());
  for (const double value : excess)
    positive.push_back(std::max(value, 0.0));
  std::sort(positive.begin(), positive.end(), std::greater<>());
  const auto top = static_cast<std::ptrdiff_t>(
      std::max(1.0, kTopStepShare * static_cast<double>(positive.size())));
  const double all = std::accumulate(positive.begin(), positive.end(), 0.0);
  if (positive.empty() || all <= 0) return 0;
  return std::accumulate(positive.begin(), positive.begin() + top, 0.0) / all;
}

}  // namespace kansoku::diagnose
