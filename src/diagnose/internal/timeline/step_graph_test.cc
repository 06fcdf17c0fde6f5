// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/timeline/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "common/rng.h"

namespace kansoku::diagnose {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Node = StepGraph::Node;

// a (2 s), then b (3 s): 5 s. Two lanes of one step: the longer one counts.
TEST(StepGraph, ADependencyAddsUp) {
  StepGraph graph;
  const Node a = graph.add(), b = graph.add();
  graph.depend(b, a);
  ASSERT_TRUE(graph.finish().has_value());
  EXPECT_THAT(graph.simulate(std::array{2.0, 3.0}, 1, 1), ElementsAre(5.0));
  // Lane 0: 2 + 3, lane 1: 4 + 7. One step of two lanes, and two steps of one.
  EXPECT_THAT(graph.simulate(std::array{2.0, 4.0, 3.0, 7.0}, 2, 2), ElementsAre(11.0));
  EXPECT_THAT(graph.simulate(std::array{2.0, 4.0, 3.0, 7.0}, 2, 1), ElementsAre(5.0, 11.0));
}

// Without a dependency both begin at 0: max(2, 3).
TEST(StepGraph, WhatDependsOnNothingRunsAtOnce) {
  StepGraph graph;
  graph.add();
  graph.add();
  ASSERT_TRUE(graph.finish().has_value());
  EXPECT_THAT(graph.simulate(std::array{2.0, 3.0}, 1, 1), ElementsAre(3.0));
}

// send after a (2 s), receive after b (5 s): both begin at 5. send takes 1, receive 4, and c (10 s)
// follows the send: 5 + 1 + 10 = 16; with c after the receive 5 + 4 + 10 = 19.
TEST(StepGraph, AGroupBeginsWithItsLastMember) {
  for (const bool after_recv : {false, true}) {
    StepGraph graph;
    const Node a = graph.add(), b = graph.add(), send = graph.add(), recv = graph.add(),
               c = graph.add();
    graph.depend(send, a);
    graph.depend(recv, b);
    graph.depend(c, after_recv ? recv : send);
    graph.communicate(std::array{send, recv}, false);
    ASSERT_TRUE(graph.finish().has_value());
    EXPECT_THAT(graph.simulate(std::array{2.0, 5.0, 1.0, 4.0, 10.0}, 1, 1),
                ElementsAre(after_recv ? 19.0 : 16.0));
  }
}

// a takes 1, 2 | 7, 3 in the lanes of two steps, the reduction 10 in each: 2 + 10 and 7 + 10. Not
// over lanes it is 1 + 10, 2 + 10 | 7 + 10, 3 + 10 with the same greatest, so d (5 s in the first
// lane of each step, else 0) shows it: over lanes 2 + 10 + 5 and 17 + 5, else 16 and 22.
TEST(StepGraph, OverLanesMeansTheWholeStepAndNoOther) {
  for (const bool over_lanes : {true, false}) {
    StepGraph graph;
    const Node a = graph.add(), reduce = graph.add(), d = graph.add();
    graph.depend(reduce, a);
    graph.depend(d, reduce);
    graph.communicate(std::array{reduce}, over_lanes);
    ASSERT_TRUE(graph.finish().has_value());
    const std::array durations{1.0, 2.0, 7.0, 3.0, 10.0, 10.0, 10.0, 10.0, 5.0, 0.0, 5.0, 0.0};
    if (over_lanes) {
      EXPECT_THAT(graph.simulate(durations, 4, 2), ElementsAre(17.0, 22.0));
    } else {
      EXPECT_THAT(graph.simulate(durations, 4, 2), ElementsAre(16.0, 22.0));
    }
  }
}

TEST(StepGraph, CirclesAreRefused) {
  StepGraph circle;
  const Node a = circle.add(), b = circle.add(), c = circle.add();
  circle.depend(b, a);
  circle.depend(c, b);
  circle.depend(b, c);
  const auto refused = circle.finish();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kCorrupt);
  EXPECT_THAT(refused.error().what, HasSubstr("2 of 3 wait for each other"));
  StepGraph self;
  const Node own = self.add();
  self.depend(own, own);
  EXPECT_FALSE(self.finish().has_value());
  // Only as one communication do they wait for each other.
  StepGraph grouped;
  const Node send = grouped.add(), between = grouped.add(), recv = grouped.add();
  grouped.depend(between, send);
  grouped.depend(recv, between);
  EXPECT_TRUE(StepGraph(grouped).finish().has_value());
  grouped.communicate(std::array{send, recv}, false);
  EXPECT_FALSE(grouped.finish().has_value());
}

// Random graphs in which each node waits for earlier ones: the longest path, computed the plain
// way. The nodes come in a random order, so that finish() has to find one.
TEST(StepGraph, EqualsTheLongestPath) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    const std::size_t count = 2 + rng.below(20);
    std::vector<Node> place(count);
    std::iota(place.begin(), place.end(), 0U);
    for (std::size_t i = count; i > 1; --i)
      std::swap(place[i - 1], place[rng.below(i)]);
    StepGraph graph;
    std::vector<double> durations(count), ends(count, 0);
    for (std::size_t i = 0; i < count; ++i)
      graph.add();
    double longest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      double start = 0;
      for (std::size_t before = 0; before < i; ++before) {
        if (rng.below(3) != 0) continue;
        graph.depend(place[i], place[before]);
        start = std::max(start, ends[before]);
      }
      durations[place[i]] = static_cast<double>(rng.below(100));
      ends[i] = start + durations[place[i]];
      longest = std::max(longest, ends[i]);
    }
    ASSERT_TRUE(graph.finish().has_value());
    EXPECT_THAT(graph.simulate(durations, 1, 1), ElementsAre(longest)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kansoku::diagnose
