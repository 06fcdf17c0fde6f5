// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/governor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace kansoku::capture::llm {
namespace {

using trace::ModelLevel;

constexpr Nanos kTick = std::chrono::milliseconds{100};

/// Cost of a process in a second, at each level's own places.
using Rates = std::array<double, kLevels>;

/// A process that is looked at as the governor says.
class Loop {
 public:
  Loop(const Governor::Options& options, const Rates& rates)
      : rates_(rates), governor_(options, boot_time(0)) {}
  /// Runs for so many ticks; the share of the time that it cost.
  double run(int ticks) {
    double cost = 0;
    for (int i = 0; i < ticks; ++i) {
      Governor::Cost one;
      one.switching = std::exchange(switching_, 0);
      for (std::size_t level = 0; level <= static_cast<std::size_t>(governor_.level()); ++level) {
        one.seconds.at(level) = rates_.at(level) * kTickSeconds;
        cost += one.seconds.at(level);
      }
      cost += one.switching;
      now_ += kTick;
      levels.push_back(governor_.level());
      if (governor_.update(now_, one) != levels.back()) switching_ = price_of_a_switch;
    }
    return cost / (ticks * kTickSeconds);
  }
  [[nodiscard]] const Governor& governor() const { return governor_; }
  void set(const Rates& rates) { rates_ = rates; }
  /// The longest run of ticks at a level.
  [[nodiscard]] int longest(ModelLevel level) const {
    int best = 0, now = 0;
    for (const ModelLevel one : levels) {
      now = one == level ? now + 1 : 0;
      best = std::max(best, now);
    }
    return best;
  }
  [[nodiscard]] auto ticks_at(ModelLevel level) const {
    return std::count(levels.begin(), levels.end(), level);
  }
  std::vector<ModelLevel> levels;  // by tick
  double price_of_a_switch{0};

 private:
  static constexpr double kTickSeconds = 0.1;
  Rates rates_;
  Governor governor_;
  BootTime now_{boot_time(0)};
  double switching_{0};
};

TEST(Governor, LeavesWhatIsCheapOnForever) {
  Loop loop({ModelLevel::kThread, 0.01}, {0, 0.001, 0.001, 0.004, 0.003});
  loop.run(1000);
  EXPECT_EQ(loop.ticks_at(ModelLevel::kThread), 1000);
}

TEST(Governor, LooksInWindowsAtWhatIsDear) {
  // The levels cost 1 and 2 per mille, and 20 and 30 percent.
  Loop loop({ModelLevel::kThread, 0.01}, {0, 0.001, 0.002, 0.2, 0.3});
  const double share = loop.run(10'000);
  EXPECT_LE(share, 0.0105);
  EXPECT_GE(share, 0.009) << "the budget is used";
  EXPECT_EQ(loop.ticks_at(ModelLevel::kNone), 0);
  EXPECT_EQ(loop.ticks_at(ModelLevel::kToken), 0);
  EXPECT_EQ(loop.ticks_at(ModelLevel::kOperator), 0);
  // 3 per mille stay on; 7 pay for windows of a second that cost half a second: one in 70.
  EXPECT_NEAR(static_cast<double>(loop.ticks_at(ModelLevel::kThread)), 10'000.0 / 71, 20);
  EXPECT_EQ(loop.longest(ModelLevel::kThread), 10);
}

TEST(Governor, LeavesTheHighestLevelOnThatLeavesMostOfTheBudget) {
  const auto between = [](const Rates& rates) {
    Loop loop({ModelLevel::kThread, 0.01}, rates);
    loop.run(200);
    return *std::min_element(loop.levels.begin(), loop.levels.end());
  };
  EXPECT_EQ(between({0, 0.0059, 0.001, 0.1, 0.1}), ModelLevel::kToken);
  EXPECT_EQ(between({0, 0.0061, 0.001, 0.1, 0.1}), ModelLevel::kNone);
  EXPECT_EQ(between({0, 0.001, 0.004, 0.1, 0.1}), ModelLevel::kGraph);
  EXPECT_EQ(between({0, 0.001, 0.001, 0.003, 0.1}), ModelLevel::kOperator);
  EXPECT_EQ(between({0, 0.5, 0.5, 0.5, 0.5}), ModelLevel::kNone);
}

TEST(Governor, KeepsTheBudgetAtEveryRate) {
  for (const double budget : {0.001, 0.01, 0.1}) {
    for (const double rate : {0.0001, 0.005, 0.05, 0.5, 2.0}) {
      for (const ModelLevel wanted : {ModelLevel::kToken, ModelLevel::kOperator}) {
        Loop loop({wanted, budget}, {0, rate / 10, rate / 5, rate, rate});
        loop.price_of_a_switch = 0.01;
        loop.run(20'000);
        // At the end of a window so much is owed at most; else the account is even.
        const double window = rate * 2.3 + 0.02;
        EXPECT_GE(loop.governor().balance(), -window) << budget << " " << rate;
        const double share = loop.run(20'000);
        // The second run may spend the savings of the first one for a window.
        EXPECT_LE(share, budget + (2 * window + 0.1) / 2000) << budget << " " << rate;
      }
    }
  }
}

TEST(Governor, PaysForSwitching) {
  const Rates rates{0, 0, 0, 0.1, 0};
  Loop cheap({ModelLevel::kOperator, 0.01}, rates), dear({ModelLevel::kOperator, 0.01}, rates);
  dear.price_of_a_switch = 0.05;
  cheap.run(10'000);
  dear.run(10'000);
  // A window costs 0.1 s, or 0.2 s with its switches.
  EXPECT_NEAR(static_cast<double>(cheap.ticks_at(ModelLevel::kOperator)) /
                  static_cast<double>(dear.ticks_at(ModelLevel::kOperator)),
              2.0, 0.2);
}

TEST(Governor, SavesNoMoreThanALittle) {
  Loop loop({ModelLevel::kOperator, 0.01}, {});
  loop.run(100'000);
  EXPECT_DOUBLE_EQ(loop.governor().balance(), 0.1);
  loop.set({0, 0, 0, 1, 0});
  loop.levels.clear();
  loop.run(30);
  EXPECT_LE(loop.longest(ModelLevel::kOperator), 2) << "a window that is over ends when it owes";
}

TEST(Governor, GoesLowerWhenItRunsFasterThanInTheWindow) {
  Loop loop({ModelLevel::kOperator, 0.01}, {0, 0.001, 0.001, 0.5, 0});
  loop.run(30);
  EXPECT_EQ(loop.governor().level(), ModelLevel::kGraph);
  loop.set({0, 0.001, 0.02, 0.5, 0});
  loop.run(30);
  EXPECT_EQ(loop.governor().level(), ModelLevel::kToken);
  loop.set({0, 0.02, 0.02, 0.5, 0});
  loop.run(30);
  EXPECT_EQ(loop.governor().level(), ModelLevel::kNone);
}

TEST(Governor, HasNoLimitAtTheWholeTime) {
  Loop loop({ModelLevel::kThread, 1.0}, {0, 1, 1, 1, 1});
  loop.run(1000);
  EXPECT_EQ(loop.ticks_at(ModelLevel::kThread), 1000);
}

TEST(Governor, LooksOnceWithoutABudget) {
  Loop loop({ModelLevel::kToken, 0}, {0, 0.1, 0, 0, 0});
  loop.run(1000);
  EXPECT_EQ(loop.ticks_at(ModelLevel::kToken), 10) << "a whole window, which nothing ever pays for";
  EXPECT_EQ(loop.governor().level(), ModelLevel::kNone);
}

TEST(Governor, ATimeThatStandsStillChangesNothing) {
  Governor governor({ModelLevel::kOperator, 0.01}, boot_time(5));
  Governor::Cost cost;
  cost.seconds[3] = 10;
  EXPECT_EQ(governor.update(boot_time(5), cost), ModelLevel::kOperator);
  EXPECT_DOUBLE_EQ(governor.balance(), -10);
}

}  // namespace
}  // namespace kansoku::capture::llm
