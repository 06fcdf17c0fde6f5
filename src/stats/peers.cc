// SPDX-License-Identifier: Apache-2.0
#include "stats/peers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <span>

#include "stats/bootstrap.h"
#include "stats/summary.h"

namespace kansoku::stats {
namespace {

constexpr double kNegligible = 1e-18;

// The median of `sorted` without the item at `left_out`. At least two items.
double median_without(const std::vector<double>& sorted, std::size_t left_out) {
  const std::size_t count = sorted.size() - 1;
  const auto at = [&](std::size_t i) { return sorted[i < left_out ? i : i + 1]; };
  return count % 2 == 1 ? at(count / 2) : 0.5 * (at(count / 2 - 1) + at(count / 2));
}

// |value - centre| of all, ascending: two runs of the sorted values, merged.
std::vector<double> deviations(const std::vector<double>& sorted, double centre) {
  std::vector<double> out;
  out.reserve(sorted.size());
  auto up = std::lower_bound(sorted.begin(), sorted.end(), centre);
  auto down = up;
  while (out.size() < sorted.size()) {
    const bool takes_up =
        down == sorted.begin() || (up != sorted.end() && *up - centre <= centre - *(down - 1));
    out.push_back(takes_up ? *up++ - centre : centre - *--down);
  }
  return out;
}

std::vector<std::size_t> ascending(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  return order;
}

std::vector<double> in_order(std::span<const double> values,
                             const std::vector<std::size_t>& order) {
  std::vector<double> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : order)
    sorted.push_back(values[i]);
  return sorted;
}

std::vector<double> clip_tails(const std::vector<double>& values, double share) {
  if (share <= 0) return values;
  const double low = quantile(values, share);
  const double high = quantile(values, 1 - share);
  std::vector<double> clipped;
  clipped.reserve(values.size());
  for (const double value : values)
    clipped.push_back(std::clamp(value, low, high));
  return clipped;
}

std::size_t suspect_count_max(std::size_t member_count) {
  return member_count < 4 ? 1 : member_count / 2;
}

// Which members may stand out, by mean excess.
std::vector<std::size_t> suspects(const std::vector<double>& means, const std::vector<bool>& known,
                                  double least) {
  std::vector<std::size_t> list;
  for (std::size_t m = 0; m < means.size(); ++m) {
    if (!known[m] && means[m] > least) list.push_back(m);
  }
  std::stable_sort(list.begin(), list.end(),
                   [&](std::size_t a, std::size_t b) { return means[a] > means[b]; });
  while (!list.empty() && means[list.back()] < kTogetherShare * means[list.front()])
    list.pop_back();
  if (list.size() > suspect_count_max(means.size())) list.resize(suspect_count_max(means.size()));
  return list;
}

/// Running sums of many members, step by step, so that the means of a resample run over
/// neighbouring memory.
class MemberSums {
 public:
  explicit MemberSums(const MemberSeries& series)
      : members_(series.size()), sums_((series.front().size() + 1) * members_) {
    for (std::size_t m = 0; m < members_; ++m) {
      for (std::size_t s = 0; s < series[m].size(); ++s)
        sums_[(s + 1) * members_ + m] = sums_[s * members_ + m] + series[m][s];
    }
  }

  /// The mean of each member over all steps of `blocks`.
  void means(std::span<const Block> blocks, std::vector<double>& out) const {
    out.assign(members_, 0);
    std::size_t count = 0;
    for (const Block& block : blocks) {
      const double* const begin = sums_.data() + block.begin * members_;
      const double* const end = begin + block.count * members_;
      for (std::size_t m = 0; m < members_; ++m)
        out[m] += end[m] - begin[m];
      count += block.count;
    }
    for (double& mean : out)
      mean /= static_cast<double>(std::max<std::size_t>(count, 1));
  }

 private:
  std::size_t members_;
  std::vector<double> sums_;  // [step][member]
};

double greatest_ordinary(const std::vector<double>& means, const std::vector<bool>& is_ordinary,
                         double bar) {
  for (std::size_t m = 0; m < means.size(); ++m) {
    if (is_ordinary[m]) bar = std::max(bar, means[m]);
  }
  return bar;
}

/// By suspect, the part of healthy groups in which a member is above all ordinary ones in as many
/// blocks.
std::vector<double> chances_of_blocks(const MemberSums& sums, const std::vector<std::size_t>& list,
                                      const std::vector<bool>& is_ordinary,
                                      std::size_t step_count) {
  std::vector<double> out(list.size(), 1);
  if (step_count < kBlocksMin) return out;
  const std::size_t block_count = (step_count < 2 * kBlocksMin ? 1 : 2) * kBlocksMin;
  std::vector<std::uint64_t> greatest(list.size());
  std::vector<double> means;
  for (std::size_t b = 0; b < block_count; ++b) {
    const std::size_t begin = b * step_count / block_count;
    const std::array block{Block{begin, (b + 1) * step_count / block_count - begin}};
    sums.means(block, means);
    const double bar = greatest_ordinary(means, is_ordinary, -1e300);
    for (std::size_t k = 0; k < list.size(); ++k)
      greatest[k] += means[list[k]] > bar ? 1 : 0;
  }
  const auto ordinary =
      static_cast<std::size_t>(std::count(is_ordinary.begin(), is_ordinary.end(), true));
  for (std::size_t k = 0; k < list.size(); ++k)
    out[k] = static_cast<double>(is_ordinary.size()) *
             chance_of_share(greatest[k], block_count, ordinary + 1);
  return out;
}

std::uint64_t count_runs(const std::vector<bool>& steps) {
  std::uint64_t count = 0;
  for (std::size_t s = 0; s < steps.size(); ++s)
    count += steps[s] && (s == 0 || !steps[s - 1]) ? 1 : 0;
  return count;
}

}  // namespace

std::vector<double> centres_of_others(std::span<const double> values) {
  std::vector<double> out(values.size());
  if (values.size() < 2) return out;
  const std::vector<std::size_t> order = ascending(values);
  const std::vector<double> sorted = in_order(values, order);
  for (std::size_t position = 0; position < order.size(); ++position)
    out[order[position]] = median_without(sorted, position);
  return out;
}

std::vector<Peers> leave_one_out(std::span<const double> values) {
  std::vector<Peers> out(values.size());
  if (values.size() < 2) return out;
  const std::vector<std::size_t> order = ascending(values);
  const std::vector<double> sorted = in_order(values, order);
  std::map<double, std::vector<double>> by_centre;  // three at most
  for (std::size_t position = 0; position < order.size(); ++position) {
    Peers& peers = out[order[position]];
    peers.centre = median_without(sorted, position);
    const auto [known, is_new] = by_centre.try_emplace(peers.centre);
    if (is_new) known->second = deviations(sorted, peers.centre);
    const std::vector<double>& away = known->second;
    const double own = std::abs(sorted[position] - peers.centre);
    const auto mine = std::lower_bound(away.begin(), away.end(), own);
    peers.spread = median_without(away, static_cast<std::size_t>(mine - away.begin()));
  }
  return out;
}

double chance_of_share(std::uint64_t own, std::uint64_t total, std::uint64_t member_count) {
  if (member_count == 0 || own == 0) return 1;
  if (member_count == 1) return 1;
  const double p = 1 / static_cast<double>(member_count);
  const auto n = static_cast<double>(total);
  double sum = 0;
  for (std::uint64_t k = own; k <= total; ++k) {
    const auto x = static_cast<double>(k);
    const double term = std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                                 x * std::log(p) + (n - x) * std::log1p(-p));
    sum += term;
    if (x > n * p && term < kNegligible * sum) break;  // the terms only fall from here on
  }
  return std::min(sum, 1.0);
}

MemberSeries excess_over_peers(const MemberSeries& values) {
  MemberSeries excess(values.size());
  if (values.empty()) return excess;
  for (auto& member : excess)
    member.resize(values.front().size());
  if (values.size() < 2) return excess;
  std::vector<double> of_step(values.size());
  for (std::size_t s = 0; s < values.front().size(); ++s) {
    for (std::size_t m = 0; m < values.size(); ++m)
      of_step[m] = values[m][s];
    const std::vector<double> centres = centres_of_others(of_step);
    for (std::size_t m = 0; m < values.size(); ++m)
      excess[m][s] = of_step[m] - centres[m];
  }
  return excess;
}

std::vector<double> excess_of(const MemberSeries& values, std::size_t member) {
  std::vector<double> excess(values[member].size());
  if (values.size() < 2) return excess;
  std::vector<double> others;
  for (std::size_t s = 0; s < excess.size(); ++s) {
    others.clear();
    for (std::size_t m = 0; m < values.size(); ++m) {
      if (m != member) others.push_back(values[m][s]);
    }
    excess[s] = values[member][s] - median(others);
  }
  return excess;
}

std::vector<Outlier> find_outliers(const MemberSeries& excess, const std::vector<bool>& known,
                                   const OutlierTest& test) {
  if (excess.size() < 2 || excess.front().empty()) return {};
  MemberSeries clipped;
  std::vector<double> means;
  for (const auto& member : excess) {
    clipped.push_back(clip_tails(member, test.clip_share));
    means.push_back(mean(clipped.back()));
  }
  const std::vector<std::size_t> list = suspects(means, known, test.least);
  if (list.empty()) return {};
  std::vector<bool> is_ordinary(excess.size());
  for (std::size_t m = 0; m < excess.size(); ++m)
    is_ordinary[m] = !known[m] && std::find(list.begin(), list.end(), m) == list.end();

  const MemberSums sums(clipped);
  const std::size_t step_count = excess.front().size();
  BlockBootstrap bootstrap(step_count, default_block_length(step_count), test.seed);
  std::vector<std::size_t> wins(list.size());
  std::vector<double> resample;
  for (std::uint32_t i = 0; i < test.resample_count; ++i) {
    sums.means(bootstrap.draw(), resample);
    const double bar = greatest_ordinary(resample, is_ordinary, test.least);
    for (std::size_t k = 0; k < list.size(); ++k)
      wins[k] += resample[list[k]] > bar ? 1 : 0;
  }
  const std::vector<double> chances = test.asks_blocks
                                          ? chances_of_blocks(sums, list, is_ordinary, step_count)
                                          : std::vector<double>(list.size());
  std::vector<Outlier> found;
  for (std::size_t k = 0; k < list.size(); ++k) {
    const double confidence =
        static_cast<double>(wins[k]) / static_cast<double>(test.resample_count);
    if (confidence >= test.confidence_min && chances[k] <= kBlameChanceMax)
      found.push_back({list[k], means[list[k]], std::min(confidence, 1 - chances[k])});
  }
  return found;
}

std::vector<double> chances_of_blocks(const MemberSeries& values,
                                      const std::vector<std::size_t>& suspects) {
  if (values.empty() || suspects.empty()) return std::vector<double>(suspects.size(), 1);
  std::vector<bool> is_ordinary(values.size(), true);
  for (const std::size_t suspect : suspects)
    is_ordinary[suspect] = false;
  return chances_of_blocks(MemberSums(values), suspects, is_ordinary, values.front().size());
}

std::vector<SeldomLong> find_seldom_long(const MemberSeries& excess, double least,
                                         const std::vector<bool>& known) {
  if (excess.size() < 2 || excess.front().size() < kBlocksMin) return {};
  MemberSeries::size_type total = 0;
  std::vector<std::vector<bool>> steps;
  std::vector<std::uint64_t> counts;
  for (const auto& member : excess) {
    steps.push_back(steps_above(member, least));
    counts.push_back(count_runs(steps.back()));
    total += counts.back();
  }
  std::vector<SeldomLong> found;
  for (std::size_t m = 0; m < excess.size(); ++m) {
    if (known[m] || counts[m] < kHotStepsMin) continue;
    const double chance =
        static_cast<double>(excess.size()) * chance_of_share(counts[m], total, excess.size());
    if (chance > kBlameChanceMax) continue;
    const double long_excess = mean_over(excess[m], steps[m]);
    const auto count = std::count(steps[m].begin(), steps[m].end(), true);
    const double spread =
        long_excess * static_cast<double>(count) / static_cast<double>(excess[m].size());
    found.push_back({m, std::move(steps[m]), long_excess, spread, chance});
  }
  return found;
}

std::vector<bool> steps_above(const std::vector<double>& excess, double least) {
  std::vector<bool> above(excess.size());
  for (std::size_t s = 0; s < excess.size(); ++s)
    above[s] = excess[s] > least;
  return above;
}

double mean_over(const std::vector<double>& values, const std::vector<bool>& steps) {
  std::vector<double> chosen;
  for (std::size_t s = 0; s < values.size(); ++s) {
    if (steps[s]) chosen.push_back(values[s]);
  }
  return mean(chosen);
}

MemberSeries without(MemberSeries values, const MemberSeries& more) {
  for (std::size_t m = 0; m < values.size(); ++m) {
    for (std::size_t s = 0; s < values[m].size(); ++s)
      values[m][s] = std::max(values[m][s] - more[m][s], 0.0);
  }
  return values;
}

double mean_of_greatest(const MemberSeries& values) {
  std::vector<double> greatest = values.front();
  for (const auto& member : values) {
    for (std::size_t s = 0; s < greatest.size(); ++s)
      greatest[s] = std::max(greatest[s], member[s]);
  }
  return mean(greatest);
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

}  // namespace kansoku::stats
