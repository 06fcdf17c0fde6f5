// SPDX-License-Identifier: Apache-2.0
#include "agent/governor.h"

#include <gtest/gtest.h>

#include <array>

namespace kansoku::agent {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr double kBudget = 0.01;
constexpr double kCallS = 1e-6;

Governor make() {
  return Governor({.budget = kBudget});
}

BootTime at(Nanos since_start) {
  return BootTime{since_start};
}

TEST(Governor, LeavesWhatIsWithinTheBudget) {
  Governor governor = make();
  // 10,000 hits of 1 us are exactly 1 % of a second.
  const std::array entries{Governor::Entry{"a", 10'000, true, kCallS}};
  EXPECT_TRUE(governor.on_window(at(seconds{1}), 1, entries, 0).empty());
  EXPECT_EQ(governor.lowered_count(), 0U);
}

TEST(Governor, TakesOffOnlyTheCostlyOneAndSaysWhy) {
  Governor governor = make();
  const std::array entries{Governor::Entry{"cheap", 100, true, kCallS},
                           Governor::Entry{"hot", 10'001, true, kCallS}};
  const auto changes = governor.on_window(at(seconds{1}), 1, entries, 0);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].entry, 1U);
  EXPECT_FALSE(changes[0].enabled);
  EXPECT_NE(changes[0].reason.find("hot: 10001 hits/s"), std::string::npos) << changes[0].reason;
  EXPECT_EQ(governor.lowered_count(), 1U);
}

TEST(Governor, WeighsAProbeByWhatItsCallsCost) {
  Governor governor = make();
  const std::array entries{Governor::Entry{"return probe", 2000, true, kCallS},
                           Governor::Entry{"own exits", 2000, true, 10 * kCallS}};
  const auto changes = governor.on_window(at(seconds{1}), 1, entries, 0);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].entry, 1U);
}

TEST(Governor, TriesAgainLaterEachTime) {
  Governor governor = make();
  const std::array hot{Governor::Entry{"hot", 1'000'000, true, kCallS}};
  const std::array off{Governor::Entry{"hot", 0, false, kCallS}};
  Nanos now{seconds{1}};
  Nanos expected{minutes{1}};
  for (int round = 0; round < 8; ++round) {
    ASSERT_EQ(governor.on_window(at(now), 1, hot, 0).size(), 1U) << round;
    EXPECT_TRUE(governor.on_window(at(now + expected - seconds{1}), 1, off, 0).empty());
    now += expected;
    const auto back = governor.on_window(at(now), 1, off, 0);
    ASSERT_EQ(back.size(), 1U) << round;
    EXPECT_TRUE(back[0].enabled);
    expected = std::min<Nanos>(expected * 2, minutes{60});
  }
}

TEST(Governor, LooksLessOftenWhileTheAgentCostsTooMuch) {
  Governor governor = make();
  Nanos now{};
  for (int i = 0; i < 10; ++i)
    static_cast<void>(governor.on_window(at(now += seconds{1}), 1, {}, 0.5));
  EXPECT_EQ(governor.slowness(), 1) << "starting costs more";
  for (int i = 0; i < 20; ++i)
    static_cast<void>(governor.on_window(at(now += seconds{1}), 1, {}, 0.05));
  EXPECT_EQ(governor.slowness(), 8);
  EXPECT_NEAR(governor.own_share(), 0.05, 1e-9);
  for (int i = 0; i < 100; ++i)
    static_cast<void>(governor.on_window(at(now += seconds{1}), 1, {}, 0));
  EXPECT_EQ(governor.slowness(), 8) << "not yet calm for long enough";
  for (int i = 0; i < 400; ++i)
    static_cast<void>(governor.on_window(at(now += seconds{1}), 1, {}, 0));
  EXPECT_EQ(governor.slowness(), 1);
}

TEST(Governor, OneWindowThatCostsMuchIsNoReason) {
  Governor governor = make();
  Nanos now{};
  for (int i = 0; i < 200; ++i)
    static_cast<void>(governor.on_window(at(now += seconds{1}), 1, {}, i == 100 ? 0.2 : 0.004));
  EXPECT_EQ(governor.slowness(), 1);
}

}  // namespace
}  // namespace kansoku::agent
