// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/peak_growth.h"

#include <gtest/gtest.h>

#include <vector>

namespace kansoku::agent {
namespace {

/// Growth a second at each of levels that are a second apart; -1 where there is none to tell.
std::vector<double> growths(const std::vector<double>& levels) {
  PeakGrowth growth;
  std::vector<double> out;
  std::int64_t second = 0;
  for (const double level : levels) {
    out.push_back(growth.add(boot_time(++second * 1'000'000'000), level).value_or(-1));
  }
  return out;
}

TEST(PeakGrowth, SteadyGrowthCountsInFull) {
  EXPECT_EQ(growths({10, 18, 26, 26, 34}), (std::vector<double>{-1, 8, 8, 0, 8}));
}

TEST(PeakGrowth, WhatWasGivenBackAndIsTakenAgainIsNone) {
  EXPECT_EQ(growths({300, 294, 295, 297, 299, 300, 302}),
            (std::vector<double>{-1, 0, 0, 0, 0, 0, 2}));
  // For teeth that end higher each time, only the difference counts.
  EXPECT_EQ(growths({10, 4, 12, 3, 15}), (std::vector<double>{-1, 0, 2, 0, 3}));
}

TEST(PeakGrowth, AHighLevelOfMoreThanHalfAMinuteAgoIsForgotten) {
  std::vector<double> levels(31, 100);
  levels.front() = 900;
  levels.push_back(100);  // 31 seconds after the peak
  levels.push_back(108);
  auto counted = growths(levels);
  EXPECT_EQ(counted.back(), 8);
  levels.erase(levels.begin() + 1, levels.begin() + 3);
  EXPECT_EQ(growths(levels).back(), 0) << "half a minute after the peak it still counts";
}

TEST(PeakGrowth, AReadingAfterALongTimeIsComparedWithTheLastOne) {
  PeakGrowth growth;
  EXPECT_FALSE(growth.add(boot_time(0), 50));
  EXPECT_EQ(growth.add(boot_time(1'000'000'000), 20), 0);
  EXPECT_EQ(growth.add(boot_time(301'000'000'000), 50), 0.1) << "30 more than 300 seconds ago";
  EXPECT_FALSE(growth.add(boot_time(301'000'000'000), 99)) << "no new reading";
}

}  // namespace
}  // namespace kansoku::agent
