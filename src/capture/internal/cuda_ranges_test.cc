// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/cuda_ranges.h"

#include <gtest/gtest.h>

namespace kansoku::capture {
namespace {

CudaRanges::Range range(std::uint32_t tid, std::int64_t begin, std::int64_t end,
                        std::uint16_t name) {
  return {.tid = tid, .begin = boot_time(begin), .end = boot_time(end), .name = name};
}

CudaRanges::Operation operation(std::uint32_t tid, std::uint32_t stream, std::int64_t launched,
                                std::int64_t begin, std::int64_t end) {
  return {.tid = tid,
          .stream = stream,
          .launched = boot_time(launched),
          .begin = boot_time(begin),
          .end = boot_time(end)};
}

TEST(NestedSlices, TakesWhatNestsInTheOrderOfEnds) {
  NestedSlices slices;
  EXPECT_TRUE(slices.add(boot_time(20), boot_time(30)));
  EXPECT_TRUE(slices.add(boot_time(40), boot_time(50)));
  EXPECT_TRUE(slices.add(boot_time(10), boot_time(50)));  // around both
  EXPECT_TRUE(slices.add(boot_time(50), boot_time(60)));
  EXPECT_FALSE(slices.add(boot_time(55), boot_time(70)));  // laps over
  EXPECT_FALSE(slices.add(boot_time(50), boot_time(70)));  // begins with another
  EXPECT_FALSE(slices.add(boot_time(49), boot_time(55)));  // out of the order of ends
  EXPECT_TRUE(slices.add(boot_time(60), boot_time(61)));
}

TEST(CudaRanges, SpanFromTheFirstBeginToTheLastEndOnEachStream) {
  CudaRanges ranges;
  ranges.add(range(1, 0, 100, 1));
  ranges.add(range(1, 10, 50, 2));
  ranges.add(operation(1, 7, 20, 200, 210));
  ranges.add(operation(1, 7, 30, 210, 230));
  ranges.add(operation(1, 8, 40, 205, 290));
  ranges.add(operation(1, 7, 60, 230, 240));   // in the outer one alone
  ranges.add(operation(1, 7, 101, 240, 250));  // in none
  ranges.add(operation(2, 7, 20, 250, 260));   // of another thread
  const auto spans = ranges.project();
  ASSERT_EQ(spans.size(), 4U);
  const auto expect = [&](std::size_t at, std::uint32_t stream, std::uint16_t name,
                          std::int64_t begin, std::int64_t end, std::uint64_t count) {
    EXPECT_EQ(spans[at].stream, stream) << at;
    EXPECT_EQ(spans[at].name, name) << at;
    EXPECT_EQ(spans[at].begin, boot_time(begin)) << at;
    EXPECT_EQ(spans[at].end, boot_time(end)) << at;
    EXPECT_EQ(spans[at].operation_count, count) << at;
    EXPECT_EQ(spans[at].lane, 0U) << at;
  };
  expect(0, 7, 1, 200, 240, 3);  // the outer one first
  expect(1, 7, 2, 200, 230, 2);
  expect(2, 8, 1, 205, 290, 1);
  expect(3, 8, 2, 205, 290, 1);
  EXPECT_EQ(ranges.left_out(), 0U);
  EXPECT_TRUE(ranges.project().empty());
}

TEST(CudaRanges, TwoThreadsInOneStreamGetLanesOfTheirOwn) {
  CudaRanges ranges;
  ranges.add(range(1, 0, 100, 1));
  ranges.add(range(2, 0, 100, 2));
  ranges.add(operation(1, 7, 10, 200, 210));
  ranges.add(operation(2, 7, 20, 210, 220));
  ranges.add(operation(1, 7, 30, 220, 230));
  ranges.add(operation(2, 7, 40, 230, 240));
  const auto spans = ranges.project();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].lane, 0U);
  EXPECT_EQ(spans[1].lane, 1U);
}

TEST(CudaRanges, CountsWhatIsBeyondItsBounds) {
  CudaRanges ranges;
  for (std::size_t i = 0; i < CudaRanges::kOpenMax + 5; ++i)
    ranges.add(range(1, 0, 100, 1));
  ranges.add(operation(1, 7, 10, 200, 210));
  EXPECT_EQ(ranges.project().size(), CudaRanges::kOpenMax);
  EXPECT_EQ(ranges.left_out(), 5U);
  CudaRanges many;
  for (std::size_t i = 0; i < CudaRanges::kRangesMax + 1; ++i)
    many.add(range(1, 0, 1, 1));
  EXPECT_EQ(many.left_out(), 1U);
}

// A process may write any times.
TEST(CudaRanges, TakesOrdersThatMakeNoSense) {
  CudaRanges ranges;
  ranges.add(range(1, 100, 0, 1));
  ranges.add(range(1, 50, 50, 2));
  ranges.add(operation(1, 7, 50, 300, 200));
  ranges.add(operation(1, 7, 50, 100, 150));
  const auto spans = ranges.project();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].name, 2);
}

}  // namespace
}  // namespace kansoku::capture
