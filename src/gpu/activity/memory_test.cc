// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/internal/memory_figures.h"
#include "gpu/activity/recording_for_test.h"
#include "gpu/activity/thresholds.h"

namespace kansoku::gpu::activity {
namespace {

using testing::IsEmpty;
using testing::Optional;

TEST(MemoryTest, LiveBytesOfCallsByStackAtTheHighWaterMark) {
  const WorkReport report = report_for_test([](Recording& r) {
    const auto allocate = [&](double us, std::int64_t bytes, std::int64_t address,
                              const char* function) {
      r.host(100, 100, "python_function", function, {us, us + 10});
      r.call(100, "cudaMalloc", {us + 1, us + 2}, {{"bytes", bytes}, {"address", address}});
    };
    allocate(0, 1000, 0x1000, "net.py(1): weights");
    allocate(20, 500, 0x2000, "net.py(2): cache");
    allocate(40, 300, 0x3000, "net.py(2): cache");
    r.call(100, "cudaFree", {60, 61}, {{"address", 0x1000}});
    allocate(80, 100, 0x1000, "net.py(3): late");
    r.call(100, "cudaMalloc", {95, 96}, {{"bytes", 1 << 30}, {"ret", 2}});  // failed: not live
  });
  ASSERT_EQ(report.memory.size(), 1U);
  const MemoryFigures& memory = report.memory[0];
  EXPECT_EQ(memory.source, "calls");
  EXPECT_EQ(memory.high_water_bytes, 1800U);
  EXPECT_EQ(memory.high_water_ns, ns_for_test(42));
  EXPECT_EQ(memory.last_bytes, 900U);
  ASSERT_EQ(memory.holders.size(), 2U);
  EXPECT_EQ(memory.holders[0].stack, "net.py(1): weights");
  EXPECT_EQ(memory.holders[0].bytes, 1000U);
  EXPECT_EQ(memory.holders[1].stack, "net.py(2): cache");
  EXPECT_EQ(memory.holders[1].bytes, 800U);
  EXPECT_EQ(memory.holders[1].count, 2U);
  ASSERT_EQ(memory.failures.size(), 1U);
  EXPECT_THAT(memory.failures[0].requested_bytes, Optional(1U << 30));
  EXPECT_THAT(memory.failures[0].live_bytes, Optional(900U));
  EXPECT_FALSE(memory.failures[0].is_survived);
}

TEST(MemoryTest, TheCounterComesBeforeTheCalls) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.memory(100, 1, 5000);
    r.memory(100, 2, 7000);
    r.memory(100, 3, 6000);
    r.call(100, "cudaMalloc", {4, 5}, {{"bytes", 1}});
  });
  ASSERT_EQ(report.memory.size(), 1U);
  EXPECT_EQ(report.memory[0].source, "counter");
  EXPECT_EQ(report.memory[0].high_water_bytes, 7000U);
  EXPECT_EQ(report.memory[0].last_bytes, 6000U);
}

TEST(MemoryTest, AReleaseOfNobodyKnowsWhatLeavesLiveBytesUnknown) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.call(100, "cudaMalloc", {0, 1}, {{"bytes", 1000}, {"address", 64}});
    r.call(100, "cudaFree", {2, 3}, {{"address", 4096}});  // allocated before the recording
  });
  EXPECT_THAT(report.memory, IsEmpty());
  EXPECT_EQ(report.figures[static_cast<std::size_t>(Figure::kMemory)].is,
            FigureState::Is::kUnknown);
}

std::vector<double> series(std::size_t count, double (*bytes)(double step)) {
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(bytes(static_cast<double>(i)));
  return out;
}

constexpr double kMiB = 1 << 20;

TEST(LeakTest, ASteadyRiseIsFoundAndAPlateauIsNot) {
  EXPECT_THAT(leak_of(series(40, [](double s) { return s * kMiB; })), Optional(kMiB));
  EXPECT_THAT(leak_of(series(20, [](double s) { return s * kMiB; })), Optional(kMiB));
  EXPECT_EQ(leak_of(series(19, [](double s) { return s * kMiB; })), std::nullopt);
  // In jumps of 4 MiB every fourth step: still steady over a quarter.
  EXPECT_TRUE(leak_of(series(40, [](double s) { return std::floor(s / 4) * 4 * kMiB; })));
  // To a plateau, early and late; by halves; and down again.
  EXPECT_EQ(leak_of(series(40, [](double s) { return std::min(s, 10.0) * 8 * kMiB; })),
            std::nullopt);
  EXPECT_EQ(leak_of(series(40, [](double s) { return std::min(s, 32.0) * 8 * kMiB; })),
            std::nullopt);
  EXPECT_EQ(leak_of(series(40, [](double s) { return 512 * kMiB * (1 - std::exp(-s / 10)); })),
            std::nullopt);
  EXPECT_EQ(leak_of(series(40, [](double s) { return (s < 20 ? s : 40 - s) * 8 * kMiB; })),
            std::nullopt);
  EXPECT_EQ(leak_of(series(40, [](double) { return 900 * kMiB; })), std::nullopt);
}

TEST(LeakTest, TheLeastRateIsThatOfTheTable) {
  constexpr double kLeast = static_cast<double>(kLeakBytesPerStepMin);
  EXPECT_TRUE(leak_of(series(40, [](double s) { return s * kLeast; })).has_value());
  EXPECT_FALSE(leak_of(series(40, [](double s) { return s * (kLeast - 1); })).has_value());
}

/// Forty steps without marks, of 12 layers each and an update; live bytes by step and layer.
WorkReport unmarked(double (*bytes)(int step, int layer), bool updates_late = false) {
  return report_for_test([&](Recording& r) {
    double us = 0;
    for (int step = 0; step < 40; ++step) {
      for (int layer = 0; layer < 12; ++layer, us += 100) {
        r.memory(100, us, bytes(step, layer));
        r.kernel(100, 7, "layer", {us + 1, us + 5}, {us + 10, us + 90});
      }
      if (updates_late && step < 20) continue;
      r.kernel(100, 7, "update", {us + 1, us + 5}, {us + 10, us + 90});
      us += 100;
    }
  });
}

TEST(LeakTest, WithoutStepsTheKernelOfEachRoundCounts) {
  const WorkReport rises = unmarked([](int step, int) { return (10 + step) * kMiB; });
  ASSERT_EQ(rises.steps_by, "none");
  ASSERT_TRUE(rises.memory[0].leak.has_value());
  EXPECT_EQ(rises.memory[0].leak->per, "update");  // the layers are as regular, but more
  EXPECT_NEAR(rises.memory[0].leak->bytes_per_step, kMiB, 1);
  ASSERT_EQ(rises.findings.size(), 1U);
  EXPECT_EQ(rises.findings[0].detail, "leak");
  EXPECT_EQ(rises.findings[0].evidence[0],
            "1.00 MiB from launch to launch of update, over 39 launches");
  // A tenth of a mebibyte a layer is more than one a step.
  EXPECT_TRUE(unmarked([](int step, int layer) { return (10 + 0.1 * (12 * step + layer)) * kMiB; })
                  .memory[0]
                  .leak.has_value());
}

TEST(LeakTest, WithoutStepsAPlateauOrActivationsAreNoLeak) {
  EXPECT_FALSE(unmarked([](int step, int) { return (10.0 + 8 * std::min(step, 20)) * kMiB; })
                   .memory[0]
                   .leak.has_value());
  EXPECT_FALSE(unmarked([](int, int layer) { return (10.0 + layer) * kMiB; }).memory[0].leak);
  // A kernel that comes only in the second half makes no rounds: the layers' count then.
  const WorkReport late = unmarked([](int step, int) { return (10.0 + step) * kMiB; }, true);
  EXPECT_FALSE(late.memory[0].leak.has_value());  // a twelfth of a mebibyte from layer to layer
}

TEST(LeakTest, PeaksWithinStepsAreNoRise) {
  std::vector<Recording::Span> steps;
  for (int i = 0; i < 40; ++i)
    steps.push_back({1000.0 * i, 1000.0 * i + 1000});
  const WorkReport report = report_for_test(
      [&](Recording& r) {
        for (std::size_t i = 0; i < 40; ++i) {
          r.memory(100, steps[i].begin_us + 100,
                   10 * kMiB + static_cast<double>(i) * 8 * kMiB);  // higher each time,
          r.memory(100, steps[i].begin_us + 900, 10 * kMiB);        // and back
        }
      },
      steps);
  ASSERT_EQ(report.memory.size(), 1U);
  EXPECT_FALSE(report.memory[0].leak.has_value());
  EXPECT_EQ(report.memory[0].high_water_bytes, static_cast<std::uint64_t>(322 * kMiB));
}

}  // namespace
}  // namespace kansoku::gpu::activity
