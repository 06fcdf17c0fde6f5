// SPDX-License-Identifier: Apache-2.0
// The model clock without a driver: what things cost, and when they begin and end.
#include "softcuda/internal/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>

#include "softcuda/internal/time_model.h"

namespace kansoku::softcuda {
namespace {

using gpu::exec::LaunchCounts;
using Moments = std::vector<std::shared_ptr<Moment>>;

constexpr Nanos kNoPatience{0};

TEST(TimeModelTest, SettingNamesTheClock) {
  EXPECT_EQ(clock_kind_from("wall").value(), ClockKind::kWall);
  EXPECT_EQ(clock_kind_from("model").value(), ClockKind::kModel);
  const auto unknown = clock_kind_from("sundial");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().what, "KANSOKU_SOFTGPU_CLOCK=sundial: not wall or model");
}

TEST(TimeModelTest, LanesBecomeSixteenths) {
  using gpu::exec::CostClass;
  const auto cost = [](int architecture, CostClass which) {
    return time_model(architecture).costs.classes[static_cast<std::size_t>(which)];
  };
  EXPECT_EQ(cost(80, CostClass::kArithmetic).issue16, 8u) << "32 lanes of 64 a cycle: half one";
  EXPECT_EQ(cost(61, CostClass::kArithmetic).issue16, 4u);
  EXPECT_EQ(cost(61, CostClass::kHalf).issue16, 256u) << "16 cycles";
  EXPECT_EQ(cost(80, CostClass::kHalf).issue16, 4u);
  EXPECT_EQ(cost(80, CostClass::kArithmetic).latency_cycles, 4u);
}

/// 1 GHz, 100 GB/s: numbers to calculate by hand.
TimeModel simple_model() {
  TimeModel model = time_model(80);
  model.clock_mhz = 1000;
  model.memory_gbps = 100;
  return model;
}

TEST(TimeModelTest, KernelsLastAsLongAsTheSlowestMultiprocessor) {
  LaunchCounts counts;
  counts.sms = {{2, 16 * 300, 200, 100}, {1, 16 * 100, 100, 100}};
  EXPECT_EQ(kernel_ns(simple_model(), counts, 4), 300u) << "busy for 300 cycles";
  counts.sms[1].latency_cycles_max = 500;
  EXPECT_EQ(kernel_ns(simple_model(), counts, 4), 500u) << "one block waits for 500";
  counts.sms[0].latency_cycles = 4001;
  EXPECT_EQ(kernel_ns(simple_model(), counts, 4), 1001u) << "blocks wait 4001, four at once";
  counts.sms[0].issue16 = 16 * 1001 + 1;
  EXPECT_EQ(kernel_ns(simple_model(), counts, 4), 1002u) << "rounded up";
  counts.sectors = 10'000;
  EXPECT_EQ(kernel_ns(simple_model(), counts, 4), 3200u) << "320,000 bytes at 100 a nanosecond";
  EXPECT_EQ(kernel_ns(simple_model(), {}, 0), 0u);
}

TEST(TimeModelTest, KernelsOfTheRealRowsByHand) {
  // 1000 blocks of 8 warps with 100 arithmetic instructions each, on 16 multiprocessors: 63 blocks
  // on the fullest. sm_80: 63 * 8 * 100 / 2 cycles at 1.41 GHz.
  LaunchCounts counts;
  counts.sms.resize(16);
  for (std::uint64_t i = 0; i < 16; ++i) {
    const std::uint64_t blocks = i < 8 ? 63 : 62;
    counts.sms[i] = {blocks, blocks * 8 * 100 * 8, blocks * 100 * 4, 400};
  }
  EXPECT_EQ(kernel_ns(time_model(80), counts, 8), 17'873u);  // 25,200 / 1.41
  counts.sectors = 1'000'000;
  EXPECT_EQ(kernel_ns(time_model(80), counts, 8), 139'131u);  // 32,000,000 / 230
}

TEST(TimeModelTest, TransfersAreRoundedUp) {
  EXPECT_EQ(transfer_ns(0, 24), 0u);
  EXPECT_EQ(transfer_ns(48, 24), 2u);
  EXPECT_EQ(transfer_ns(49, 24), 3u);
  EXPECT_EQ(copy_within_ns(simple_model(), 1000), 20u);
}

std::string row(std::initializer_list<std::string> cells) {
  std::string line = "|";
  for (const std::string& cell : cells)
    line += cell.empty() ? " |" : " " + cell + " |";
  return line;
}

TEST(TimeModelTest, ThePageHasTheTable) {
  std::ifstream file(KANSOKU_SOURCE_DIR "/docs/softgpu-clock.md");
  std::stringstream page;
  page << file.rdbuf();
  const auto expect = [&](const std::string& line) {
    EXPECT_THAT(page.str(), ::testing::HasSubstr(line + "\n"));
  };
#define KANSOKU_MODEL_ROW(id, what, unit, sm_61, sm_80, source) \
  expect(row({what, unit, std::to_string(sm_61), std::to_string(sm_80), source}));
#define KANSOKU_MODEL_CLASS(id, lanes_61, lanes_80, latency_61, latency_80, source)           \
  expect(row({std::string(gpu::exec::cost_class_name(gpu::exec::CostClass::id)),              \
              std::to_string(lanes_61), std::to_string(lanes_80), std::to_string(latency_61), \
              std::to_string(latency_80), source}));
#include "softcuda/internal/time_model.inc"
}

Part part(Engine engine, std::uint64_t ns, std::vector<std::uint32_t> after = {}) {
  Part made;
  made.engine = engine;
  made.ns = ns;
  made.sm_count = 4;
  made.after = std::move(after);
  return made;
}

/// One device with four multiprocessors.
class TimelineTest : public ::testing::Test {
 protected:
  /// An operation that has run.
  std::shared_ptr<Moment> done(Part part, Moments after = {}) {
    auto moment = timeline_.submit(0, std::move(after));
    timeline_.finish(moment, {std::move(part)});
    return moment;
  }
  Timeline timeline_{{2, 4, kNoPatience, [this] { ++guesses_; }}};
  int guesses_{0};
};

TEST_F(TimelineTest, CopiesAndKernelsOverlap) {
  const auto kernel = done(part(Engine::kCompute, 100));
  const auto in = done(part(Engine::kCopyIn, 60));
  const auto out = done(part(Engine::kCopyOut, 70));
  EXPECT_EQ(timeline_.end_of(kernel), 100u);
  EXPECT_EQ(timeline_.end_of(in), 60u);
  EXPECT_EQ(timeline_.end_of(out), 70u);
}

TEST_F(TimelineTest, CopiesOfOneDirectionQueue) {
  const auto first = done(part(Engine::kCopyIn, 60));
  const auto second = done(part(Engine::kCopyIn, 10));
  EXPECT_EQ(timeline_.end_of(first), 60u);
  EXPECT_EQ(timeline_.end_of(second), 70u);
}

TEST_F(TimelineTest, DevicesHaveEnginesOfTheirOwn) {
  static_cast<void>(done(part(Engine::kCopyIn, 60)));
  const auto other = timeline_.submit(1, {});
  timeline_.finish(other, {part(Engine::kCopyIn, 10)});
  EXPECT_EQ(timeline_.end_of(other), 10u);
}

TEST_F(TimelineTest, SmallKernelsShareTheMultiprocessors) {
  Part small = part(Engine::kCompute, 100);
  small.sm_count = 2;
  Part smaller = part(Engine::kCompute, 30);
  smaller.sm_count = 1;
  EXPECT_EQ(timeline_.end_of(done(small)), 100u);
  EXPECT_EQ(timeline_.end_of(done(small)), 100u) << "beside the first";
  EXPECT_EQ(timeline_.end_of(done(smaller)), 130u) << "all are taken";
  EXPECT_EQ(timeline_.end_of(done(smaller)), 130u);
  EXPECT_EQ(timeline_.end_of(done(part(Engine::kCompute, 5))), 135u) << "needs all";
}

TEST_F(TimelineTest, OperationsWaitForOthersAndForTheHost) {
  const auto kernel = done(part(Engine::kCompute, 100));
  const auto copy = done(part(Engine::kCopyOut, 10), {kernel, nullptr});
  EXPECT_EQ(timeline_.end_of(copy), 110u);
  const auto before = done(part(Engine::kCopyIn, 1));
  EXPECT_EQ(timeline_.end_of(before), 1u) << "the host's time stands still";
  EXPECT_EQ(timeline_.host_ns(), 0u);
  timeline_.reach(copy);
  EXPECT_EQ(timeline_.host_ns(), 110u);
  timeline_.reach(before);
  EXPECT_EQ(timeline_.host_ns(), 110u) << "and never goes back";
  EXPECT_EQ(timeline_.end_of(done(part(Engine::kCopyIn, 1))), 111u);
}

TEST_F(TimelineTest, LatencyDoesNotTakeTheEngine) {
  Part late = part(Engine::kCopyIn, 60);
  late.lead_ns = 40;
  EXPECT_EQ(timeline_.end_of(done(late)), 100u);
  EXPECT_EQ(timeline_.end_of(done(late)), 160u) << "the second one's passed meanwhile";
}

/// A graph: kernel; then a copy beside another kernel; then a copy.
std::vector<Part> diamond(bool is_serial) {
  return {part(Engine::kCompute, 10), part(Engine::kCopyIn, 50, {0}),
          part(Engine::kCompute, 70, {is_serial ? 1u : 0u}), part(Engine::kCopyOut, 5, {1, 2})};
}

TEST_F(TimelineTest, BranchesOfAGraphGoSideBySide) {
  const auto parallel = timeline_.submit(0, {});
  timeline_.finish(parallel, diamond(false));
  EXPECT_EQ(timeline_.end_of(parallel), 10u + 70 + 5);
  timeline_.reach(parallel);
  const auto serial = timeline_.submit(0, {});
  timeline_.finish(serial, diamond(true));
  EXPECT_EQ(timeline_.end_of(serial), 85u + 10 + 50 + 70 + 5);
}

TEST_F(TimelineTest, StampsAreTheEndsOfParts) {
  std::vector<Part> parts = diamond(false);
  const auto stamp = std::make_shared<std::atomic<std::uint64_t>>();
  parts[1].stamp = stamp;
  const auto graph = timeline_.submit(0, {});
  timeline_.finish(graph, std::move(parts));
  EXPECT_EQ(timeline_.end_of(graph), 85u);
  EXPECT_EQ(stamp->load(), 60u);
}

TEST_F(TimelineTest, PartsWaitForOtherOperations) {
  const auto other = done(part(Engine::kCopyOut, 500));
  std::vector<Part> parts = diamond(false);
  parts[2].outside = other;
  const auto graph = timeline_.submit(0, {});
  timeline_.finish(graph, std::move(parts));
  EXPECT_EQ(timeline_.end_of(graph), 500u + 70 + 5);
}

/// Four operations that have run in the order given; their ends.
std::vector<std::uint64_t> ends_in_order(std::initializer_list<std::size_t> order) {
  Timeline timeline({1, 4, kNoPatience, [] { ADD_FAILURE() << "a guess"; }});
  Moments all;
  all.push_back(timeline.submit(0, {}));
  all.push_back(timeline.submit(0, {}));
  all.push_back(timeline.submit(0, {all[0]}));
  all.push_back(timeline.submit(0, {all[1]}));
  const std::array<Part, 4> parts{part(Engine::kCopyIn, 30), part(Engine::kCopyIn, 20),
                                  part(Engine::kCompute, 7), part(Engine::kCompute, 90)};
  for (const std::size_t i : order)
    timeline.finish(all[i], {parts[i]});
  std::vector<std::uint64_t> ends;
  for (const auto& moment : all)
    ends.push_back(timeline.end_of(moment));
  return ends;
}

TEST_F(TimelineTest, WhatRanFirstInTruthDoesNotMatter) {
  const std::vector<std::uint64_t> expected{30, 50, 37, 140};
  EXPECT_EQ(ends_in_order({0, 1, 2, 3}), expected);
  EXPECT_EQ(ends_in_order({1, 3, 0, 2}), expected);
  EXPECT_EQ(ends_in_order({3, 2, 1, 0}), expected);
}

TEST_F(TimelineTest, WhatNeverRunsIsLeftOutAfterAWhile) {
  const auto stuck = timeline_.submit(0, {});
  const auto copy = done(part(Engine::kCopyIn, 20));
  EXPECT_EQ(timeline_.end_of(copy), 20u);
  EXPECT_EQ(guesses_, 1) << "said, as it depends on who ran first";
  EXPECT_EQ(timeline_.end_of(done(part(Engine::kCopyIn, 10))), 30u);
  EXPECT_EQ(guesses_, 1) << "nobody waits for it again";
  timeline_.finish(stuck, {part(Engine::kCopyIn, 30)});
  EXPECT_EQ(timeline_.end_of(stuck), 60u);
}

TEST_F(TimelineTest, WhoWaitsForWhatWasLeftOutIsKnownWithIt) {
  const auto stuck = timeline_.submit(0, {});
  const auto behind = timeline_.submit(0, {stuck});
  EXPECT_EQ(timeline_.end_of(done(part(Engine::kCopyIn, 20))), 20u);
  EXPECT_EQ(guesses_, 1);
  const auto later = timeline_.submit(0, {behind});
  timeline_.finish(stuck, {part(Engine::kCopyIn, 30)});
  timeline_.finish(behind, {part(Engine::kCopyIn, 5)});
  timeline_.finish(later, {part(Engine::kCopyIn, 1)});
  EXPECT_EQ(timeline_.end_of(stuck), 50u);
  EXPECT_EQ(timeline_.end_of(behind), 55u);
  EXPECT_EQ(timeline_.end_of(later), 56u);
  EXPECT_EQ(guesses_, 1);
}

TEST_F(TimelineTest, WhatComesBehindTheStuckMayBeAskedFor) {
  const auto stuck = timeline_.submit(0, {});
  EXPECT_EQ(timeline_.end_of(done(part(Engine::kCopyIn, 20))), 20u);
  const auto behind = timeline_.submit(0, {stuck});
  EXPECT_EQ(timeline_.end_of(done(part(Engine::kCopyIn, 20))), 40u) << "another stream";
  EXPECT_EQ(guesses_, 2);
  timeline_.finish(stuck, {part(Engine::kCopyIn, 30)});
  timeline_.finish(behind, {part(Engine::kCopyIn, 5)});
  EXPECT_EQ(timeline_.end_of(behind), 75u);
  EXPECT_EQ(guesses_, 2);
}

TEST_F(TimelineTest, RunningOperationsKnowWhenTheyBegan) {
  static_cast<void>(done(part(Engine::kCompute, 100)));
  const auto graph = timeline_.submit(0, {});
  Part next = part(Engine::kCompute, 0, {0});
  next.lead_ns = 3;
  EXPECT_EQ(timeline_.begin_of(graph, {part(Engine::kCopyIn, 20)}, next), 100u) << "the engine's";
  EXPECT_EQ(timeline_.begin_of(graph, {part(Engine::kCopyIn, 200)}, next), 203u);
  EXPECT_EQ(timeline_.begin_of(graph, {part(Engine::kCopyIn, 20)}, next), 100u)
      << "asking changes nothing";
  EXPECT_EQ(guesses_, 0);
}

}  // namespace
}  // namespace kansoku::softcuda
