// SPDX-License-Identifier: Apache-2.0
#include "stats/counts.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "common/rng.h"

namespace kansoku::stats {
namespace {

double tail(const BetaBinomial& model, std::int64_t hits, std::int64_t trials) {
  const Result<double> value = model.at_least(hits, trials);
  EXPECT_TRUE(value) << value.error().what;
  return value ? *value : -1;
}

// The tables are from tests/stats/tail_reference.py.
TEST(BetaBinomialTest, TailIsExact) {
  struct Entry {
    std::int64_t hits, trials;
    double alpha, beta, value;
  };
  constexpr std::array<Entry, 8> kTable{{
      {3, 10, 2, 5, 0.51098901098901099},
      {9, 10, 2, 5, 0.0076173826173826174},
      {1, 1, 0.5, 0.5, 0.5},
      {60, 100, 0.3, 0.7, 0.22575434760924417},
      {40, 1000, 2, 200, 0.0045622894843020509},
      {100, 1000, 2, 200, 8.8510836556818189e-08},
      {400, 1000, 2, 200, 2.6099499189833518e-38},
      {100, 100, 0.2, 9, 9.3533185256458720e-15},
  }};
  for (const Entry& entry : kTable) {
    const double value = tail(BetaBinomial::of(entry.alpha, entry.beta), entry.hits, entry.trials);
    EXPECT_NEAR(value, entry.value, 1e-10 * entry.value) << entry.hits << ' ' << entry.trials;
  }
}

TEST(BetaBinomialTest, WithoutCorrelationItIsTheBinomial) {
  struct Entry {
    std::int64_t hits, trials;
    double p, value;
  };
  constexpr std::array<Entry, 5> kTable{{
      {3, 10, 0.2, 0.32220047360000015},
      {10, 10, 0.2, 1.0240000000000006e-07},
      {60, 1000, 0.02, 1.8715005399092196e-13},
      {200, 1000, 0.02, 1.1073925517051822e-131},
      {50100, 100000, 0.5, 0.26457864704009904},
  }};
  for (const Entry& entry : kTable) {
    const double value = tail({entry.p, 0}, entry.hits, entry.trials);
    EXPECT_NEAR(value, entry.value, 1e-10 * entry.value) << entry.hits << ' ' << entry.trials;
  }
  // The limit from the other side.
  EXPECT_NEAR(tail({0.02, 1.1e-6}, 25, 1000), tail({0.02, 0}, 25, 1000), 1e-3);
}

TEST(BetaBinomialTest, FallsFromOneToZero) {
  const BetaBinomial model{0.3, 0.4};
  EXPECT_EQ(tail(model, -3, 50), 1);
  EXPECT_EQ(tail(model, 0, 50), 1);
  EXPECT_EQ(tail(model, 51, 50), 0);
  EXPECT_EQ(tail(model, 1, 0), 0);
  double before = 1;
  for (std::int64_t hits = 1; hits <= 50; ++hits) {
    const double now = tail(model, hits, 50);
    EXPECT_GT(now, 0);
    EXPECT_LT(now, before);
    before = now;
  }
  // From both sides: at least k hits, or at least n - k + 1 misses.
  for (const std::int64_t hits : {1, 20, 50})
    EXPECT_NEAR(tail(model, hits, 50) + tail({0.7, 0.4}, 51 - hits, 50), 1, 1e-12);
}

TEST(BetaBinomialTest, ParametersOutsideTheirRangesAreRefused) {
  EXPECT_EQ((BetaBinomial{0.5, 1}.at_least(1, 2).error().code), Code::kUnsupported);
  EXPECT_EQ((BetaBinomial{std::nan(""), 0}.at_least(1, 2).error().code), Code::kUnsupported);
  EXPECT_EQ((BetaBinomial{1.1, 0}.at_least(1, 2).error().code), Code::kUnsupported);
  EXPECT_EQ((BetaBinomial{0.5, 0}.at_least(1, -2).error().code), Code::kUnsupported);
  EXPECT_EQ((BetaBinomial{0.5, 0}.at_least(1, 100'000'001).error().code), Code::kLimit);
  EXPECT_TRUE((BetaBinomial{0.5, 0}.at_least(1, 100'000'000)));
}

TEST(FitCounts, EqualsADirectSearch) {
  constexpr std::array<int, 15> kHits{0, 3, 1, 7, 2, 0, 5, 12, 4, 1, 0, 9, 2, 3, 6};
  constexpr std::array<int, 15> kTrials{50, 60, 40, 80, 50, 30, 70, 90, 60, 40, 50, 75, 45, 55, 65};
  std::vector<CountWindow> windows;
  for (std::size_t i = 0; i < kHits.size(); ++i)
    windows.push_back({kHits[i], kTrials[i]});
  const Result<CountFit> fit = fit_counts(windows);
  ASSERT_TRUE(fit) << fit.error().what;
  EXPECT_NEAR(fit->model.mean, 0.05901384911, 1e-6);
  EXPECT_NEAR(fit->model.correlation, 0.01647068319, 1e-6);
  EXPECT_NEAR(fit->log_likelihood, -202.642647131, 1e-7);
}

TEST(FitCounts, RecoversTheParameters) {
  RandomStream random(4, "counts");
  for (const double correlation : {0.0, 0.05, 0.5}) {
    std::vector<CountWindow> windows;
    for (int i = 0; i < 4000; ++i) {
      // Polya's urn: each hit makes the next more likely.
      double hits = 0;
      const double total = correlation > 0 ? (1 - correlation) / correlation : 1e12;
      for (int j = 0; j < 40; ++j)
        hits += random.uniform() < (0.2 * total + hits) / (total + j) ? 1 : 0;
      windows.push_back({static_cast<std::int64_t>(hits), 40});
    }
    const Result<CountFit> fit = fit_counts(windows);
    ASSERT_TRUE(fit) << fit.error().what;
    EXPECT_NEAR(fit->model.mean, 0.2, 0.02) << correlation;
    EXPECT_NEAR(fit->model.correlation, correlation, 0.002 + 0.06 * correlation);
  }
}

TEST(FitCounts, LessSpreadThanABinomialIsABinomial) {
  const std::vector<CountWindow> windows(50, CountWindow{10, 100});
  const Result<CountFit> fit = fit_counts(windows);
  ASSERT_TRUE(fit) << fit.error().what;
  EXPECT_EQ(fit->model.correlation, 0);
  EXPECT_DOUBLE_EQ(fit->model.mean, 0.1);
}

TEST(FitCounts, NothingOrAllLeavesEveryCountPossible) {
  const Result<CountFit> none = fit_counts(std::vector<CountWindow>(20, {0, 50}));
  ASSERT_TRUE(none) << none.error().what;
  EXPECT_NEAR(none->model.mean, 0.5 / 1001, 1e-12);
  EXPECT_GT(tail(none->model, 1, 50), 0);
  const Result<CountFit> all = fit_counts(std::vector<CountWindow>(20, {50, 50}));
  ASSERT_TRUE(all) << all.error().what;
  EXPECT_NEAR(all->model.mean, 1000.5 / 1001, 1e-12);
}

TEST(FitCounts, BadWindowsAreRefused) {
  std::vector<CountWindow> windows(10, CountWindow{1, 5});
  EXPECT_TRUE(fit_counts(windows));
  windows[3] = {0, 0};
  EXPECT_EQ(fit_counts(windows).error().code, Code::kLimit);
  windows[3] = {6, 5};
  EXPECT_EQ(fit_counts(windows).error().code, Code::kCorrupt);
  windows[3] = {-1, 5};
  EXPECT_EQ(fit_counts(windows).error().code, Code::kCorrupt);
  windows[3] = {0, -1};
  EXPECT_EQ(fit_counts(windows).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace kansoku::stats
