// SPDX-License-Identifier: Apache-2.0
// Planted causes that cost about a tenth of the step, each named first; and their twins, which look
// alike, cost next to nothing, and name nothing. Step lengths, counts and costs vary.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/activity/planted_for_test.h"

namespace kansoku::gpu::activity {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

std::string text_of(const WorkReport& report) {
  std::string text;
  for (const Finding& finding : report.findings)
    text += fmt::format("{}/{} {:.3f}; ", finding.kind, finding.detail, finding.share.value_or(-1));
  return text;
}

/// Plans around which nothing else is wrong: three sizes of a step of 2 to 15 ms.
std::vector<Plan> plans() {
  std::vector<Plan> out;
  std::uint64_t seed = 1;
  for (const auto& [kernels, us] : {std::pair{40, 50.0}, {60, 100.0}, {100, 150.0}}) {
    Plan plan;
    plan.seed = seed++;
    plan.kernels = kernels;
    plan.kernel_us = us;
    out.push_back(plan);
  }
  return out;
}

double step_us(const Plan& plan) {
  return plan.kernels * plan.kernel_us;
}

void expect_first(const Plan& plan, const std::string& kind, const std::string& detail,
                  double share) {
  const WorkReport report = planted(plan);
  ASSERT_FALSE(report.findings.empty()) << kind << " " << detail << " " << step_us(plan);
  EXPECT_EQ(report.findings[0].kind, kind) << text_of(report);
  EXPECT_EQ(report.findings[0].detail, detail) << text_of(report);
  ASSERT_TRUE(report.findings[0].share.has_value());
  EXPECT_NEAR(*report.findings[0].share, share, 0.03) << text_of(report);
}

void expect_nothing(const Plan& plan) {
  const WorkReport report = planted(plan);
  EXPECT_TRUE(report.findings.empty()) << text_of(report);
}

constexpr double kCosts[]{0.08, 0.1, 0.13};

TEST(PlantedTest, AHealthyLoopHasNoFinding) {
  for (const Plan& plan : plans())
    expect_nothing(plan);
  Plan four = plans()[1];
  four.ranks = 4;
  expect_nothing(four);
}

TEST(PlantedTest, ADeviceThatIsClockedLower) {
  for (Plan plan : plans()) {
    plan.ranks = 4;
    plan.steps = 12;
    plan.names_devices = true;
    expect_nothing(plan);  // other names, equal clocks
    for (const double cost : kCosts) {
      plan.slow_rank = static_cast<int>(plan.seed);
      plan.slow_ratio = 1 / (1 - cost);
      expect_first(plan, "slow_kernel", "clocked_lower", cost);
      EXPECT_THAT(planted(plan).findings[0].ranks, ElementsAre(plan.slow_rank));
    }
    plan.slow_ratio = 1.01;
    expect_nothing(plan);
  }
}

TEST(PlantedTest, OneKernelThatIsSlowOnOneRank) {
  Plan plan = plans()[1];
  plan.ranks = 4;
  plan.steps = 12;
  plan.slow_rank = 2;
  plan.slow_kernel = 1;
  plan.slow_ratio = 1.5;  // a quarter of the time, so 11 % of the step
  expect_first(plan, "slow_kernel", "kernel_1", 0.111);
  plan.ranks = 2;  // nobody can tell which of two is slow
  plan.slow_rank = 1;
  expect_nothing(plan);
}

TEST(PlantedTest, SlowRanksAreToldTogether) {
  Plan plan = plans()[1];
  plan.ranks = 5;
  plan.slow_rank = 2;
  plan.other_slow_rank = 4;
  plan.slow_ratio = 1.2;
  expect_first(plan, "slow_kernel", "clocked_lower", 0.2 / 1.2);
  const WorkReport report = planted(plan);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_THAT(report.findings[0].ranks, ElementsAre(2, 4));
}

// One kernel's name stands for two sizes, of which one rank has more: none of its calls is slow.
TEST(PlantedTest, ANameWithTwoSizesIsNoSlowKernel) {
  for (Plan plan : plans()) {
    plan.kernels = 48;
    plan.ranks = 4;
    plan.two_sizes = true;
    plan.slow_rank = 1;
    plan.more_kernels = 1;
    expect_nothing(plan);
    plan.more_kernels = 0;
    plan.slow_ratio = 1.3;
    expect_first(plan, "slow_kernel", "clocked_lower", 0.3 / 1.3);
  }
}

TEST(PlantedTest, MoreWorkIsNoSlowKernel) {
  Plan plan = plans()[1];
  plan.ranks = 4;
  plan.slow_rank = 3;
  plan.slow_ratio = 1.5;
  expect_first(plan, "slow_kernel", "clocked_lower", 1 / 3.0);
  plan.does_more = true;
  plan.slow_kernel = 0;  // by the size that the operators name
  expect_nothing(plan);
  const WorkReport report = planted(plan);
  ASSERT_EQ(report.device_notes.size(), 1U);
  EXPECT_THAT(report.device_notes[0].text,
              HasSubstr("rank 3 (78 %): so much of the kernels' time is in kernels or sizes"));
  plan.slow_kernel = 3;  // the one that all ranks run
  EXPECT_THAT(planted(plan).findings, Contains(Field(&Finding::detail, "kernel_3")));
}

TEST(PlantedTest, ARankThatLosesMuchHasAFindingOfItsOwn) {
  Plan plan = plans()[0];
  plan.ranks = 4;
  plan.tiny_kernels = 60;
  plan.slow_rank = 2;
  plan.slow_tiny_launch_us = 160;
  const WorkReport report = planted(plan);
  ASSERT_EQ(report.findings.size(), 2U) << text_of(report);
  EXPECT_THAT(report.findings[0].ranks, ElementsAre(2));
  EXPECT_GT(report.findings[0].share.value_or(0), 0.5);
  EXPECT_THAT(report.findings[1].ranks, ElementsAre(0, 1, 3));
  EXPECT_LT(report.findings[1].share.value_or(1), 0.2);
}

TEST(PlantedTest, ALaunchBoundLoop) {
  for (Plan plan : plans()) {
    for (const double cost : kCosts) {
      // Each tiny kernel leaves the device idle for the rest of its launch.
      plan.tiny_kernels = static_cast<int>(step_us(plan) * cost / (1 - cost) / 5);
      // An operation begins with the event before it, so the launch calls count as a whole.
      const double lost_us = plan.tiny_kernels * plan.tiny_launch_us;
      expect_first(plan, "launch_bound", "launches", lost_us / (step_us(plan) + lost_us));
    }
    Plan twin = plan;  // as many launches, of kernels longer than a launch
    twin.tiny_us = 12;
    expect_nothing(twin);
  }
}

TEST(PlantedTest, PageableCopies) {
  for (Plan plan : plans()) {
    for (const double cost : kCosts) {
      plan.copy_us = step_us(plan) * cost / (1 - cost);
      expect_first(plan, "copy_bound", "pageable", cost);
      Plan twin = plan;
      twin.copies_beside = true;
      expect_nothing(twin);
    }
  }
}

TEST(PlantedTest, SynchronisationInTheLoop) {
  for (Plan plan : plans()) {
    for (const double cost : kCosts) {
      plan.syncs = plan.kernels / 4;
      // Cost of a wait: its return, the program, and the way to the device.
      plan.after_sync_us = step_us(plan) * cost / (1 - cost) / plan.syncs - 2 - plan.begin_us;
      expect_first(plan, "gpu_starved", "synchronisation", cost);
      Plan twin = plan;
      twin.syncs_at_end = true;
      twin.syncs = 5;
      expect_nothing(twin);
    }
  }
}

TEST(PlantedTest, AllocationInTheLoop) {
  for (Plan plan : plans()) {
    for (const double cost : kCosts) {
      plan.allocations = 5;
      // A release that waits for the device, and the way to the next launch.
      plan.allocation_us =
          2 * (step_us(plan) * cost / (1 - cost) / plan.allocations - plan.begin_us);
      expect_first(plan, "gpu_starved", "allocation", cost);
      Plan twin = plan;
      twin.allocations = 0;
      twin.allocations_before = 200;
      expect_nothing(twin);
    }
  }
}

TEST(PlantedTest, ASlowLoader) {
  for (Plan plan : plans()) {
    for (const double cost : kCosts) {
      plan.loader_us = step_us(plan) * cost / (1 - cost);
      expect_first(plan, "gpu_starved", "loader", cost);
      Plan twin = plan;
      twin.loads_beside = true;
      expect_nothing(twin);
    }
  }
}

TEST(PlantedTest, ASingleStallIsNoPattern) {
  Plan plan = plans()[1];
  plan.stall_us = 0.15 * step_us(plan) * plan.steps;
  expect_nothing(plan);
  plan.loader_us = 0.1 * step_us(plan);  // beside it, a pattern is found
  const WorkReport report = planted(plan);
  ASSERT_EQ(report.findings.size(), 1U) << text_of(report);
  EXPECT_EQ(report.findings[0].detail, "loader");
}

TEST(PlantedTest, ALockHeldByAnotherThread) {
  for (Plan plan : plans()) {
    for (const double cost : kCosts) {
      plan.lock_us = step_us(plan) * cost / (1 - cost);
      expect_first(plan, "gpu_starved", "lock", cost);
      Plan twin = plan;
      twin.locks_elsewhere = true;
      expect_nothing(twin);
    }
  }
}

TEST(PlantedTest, ALeakAndAPoolThatGrowsToAPlateau) {
  for (Plan plan : plans()) {
    plan.leak_bytes = 1 << 20;
    const WorkReport report = planted(plan);
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings[0].kind, "memory_pressure");
    EXPECT_EQ(report.findings[0].detail, "leak");
    ASSERT_TRUE(report.memory[0].leak.has_value());
    EXPECT_NEAR(report.memory[0].leak->bytes_per_step, 1 << 20, 1);
    Plan twin = plan;
    twin.leak_bytes = 0;
    for (const double bytes : {1.0 * (1 << 16), 1.0 * (1 << 20), 1.0 * (8 << 20)}) {
      twin.pool_bytes = bytes;
      expect_nothing(twin);
    }
    Plan little = plan;
    little.leak_bytes = 1 << 18;
    expect_nothing(little);
    Plan few = plan;
    few.steps = 19;  // too few to tell
    expect_nothing(few);
  }
}

TEST(PlantedTest, OutOfMemoryAndAnAllocationThatFailsByDesign) {
  for (Plan plan : plans()) {
    plan.fails_in_step = 25;
    const WorkReport report = planted(plan);
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings[0].kind, "memory_pressure");
    EXPECT_EQ(report.findings[0].detail, "out_of_memory");
    EXPECT_THAT(report.findings[0].evidence[0],
                HasSubstr("asked for 16384.0 MiB with 64.0 MiB live"));
    plan.survives = true;
    const WorkReport survived = planted(plan);
    EXPECT_THAT(survived.findings, IsEmpty()) << text_of(survived);
    EXPECT_THAT(survived.notes, testing::Contains(HasSubstr("it went on")));
  }
}

}  // namespace
}  // namespace kansoku::gpu::activity
