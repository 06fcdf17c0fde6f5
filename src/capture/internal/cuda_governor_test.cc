// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/cuda_governor.h"

#include <gtest/gtest.h>

namespace kansoku::capture {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000, kStep = 10'000'000;

/// Runs for some seconds with so many launches a second; those while the probes are on hit.
double share_of(CudaGovernor& governor, std::uint64_t rate, int duration_s) {
  std::uint64_t hits = 0;
  bool is_on = true;
  for (std::int64_t t = 0; t < duration_s * kSecond; t += kStep) {
    is_on = governor.decide(boot_time(t), hits);
    if (is_on) hits += rate * kStep / kSecond;
  }
  return static_cast<double>(hits) / static_cast<double>(rate) / duration_s;
}

TEST(CudaGovernor, LeavesProbesOnWithinTheBudget) {
  CudaGovernor governor(0.05, 1e-6);
  EXPECT_EQ(share_of(governor, 40'000, 5), 1.0);
  EXPECT_EQ(governor.share_on(), 1.0);
  EXPECT_FALSE(governor.is_sliced());
}

TEST(CudaGovernor, TakesThemOffInSlicesAboveIt) {
  CudaGovernor governor(0.05, 1e-6);
  const double seen = share_of(governor, 500'000, 20);
  // A tenth of the time: the first tenth of a second, all of it, is saved in those that follow.
  EXPECT_NEAR(seen, 0.1, 0.003);
  EXPECT_NEAR(governor.share_on(), seen, 0.01);
  EXPECT_NEAR(governor.rate(), 500'000, 50'000);
  EXPECT_TRUE(governor.is_sliced());
}

TEST(CudaGovernor, SaysWhenASliceEnds) {
  CudaGovernor governor(0.05, 1e-6);
  EXPECT_TRUE(governor.decide(boot_time(0), 0));
  EXPECT_EQ(governor.next(), boot_time(kSecond / 10));
  // 250,000 a second cost five times the budget, and 20 ms of the next second's 50 are spent.
  EXPECT_TRUE(governor.decide(governor.next(), 25'000));
  EXPECT_EQ(governor.next(), boot_time(kSecond * 22 / 100));
  EXPECT_FALSE(governor.decide(governor.next(), 55'000));
  EXPECT_EQ(governor.next(), boot_time(kSecond * 11 / 10));
  EXPECT_TRUE(governor.decide(governor.next(), 55'000));
  EXPECT_EQ(governor.next(), boot_time(kSecond * 13 / 10));
}

TEST(CudaGovernor, KeepsToTheBudgetWhenTheRateIsUneven) {
  CudaGovernor governor(0.05, 1e-6);
  std::uint64_t hits = 0;
  for (std::int64_t t = 0; t < 60 * kSecond; t += kStep / 10) {
    const std::uint64_t rate = t / kSecond % 2 == 0 ? 600'000 : 200'000;
    if (governor.decide(boot_time(t), hits)) hits += rate * kStep / 10 / kSecond;
  }
  EXPECT_LT(static_cast<double>(hits) * 1e-6 / 60, 0.0515);
  EXPECT_GT(static_cast<double>(hits) * 1e-6 / 60, 0.025);
}

TEST(CudaGovernor, ReturnsToAllWhenTheRateFalls) {
  CudaGovernor governor(0.05, 1e-6);
  std::uint64_t hits = 0;
  bool is_on = true;
  for (std::int64_t t = 0; t < 10 * kSecond; t += kStep) {
    is_on = governor.decide(boot_time(t), hits);
    if (is_on) hits += (t < 3 * kSecond ? 500'000 : 1'000) * kStep / kSecond;
  }
  EXPECT_TRUE(is_on);
  EXPECT_FALSE(governor.is_sliced());
}

}  // namespace
}  // namespace kansoku::capture
