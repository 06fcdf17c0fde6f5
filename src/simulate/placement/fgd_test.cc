// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/fgd.h"

#include <array>

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

const std::array kTypical{TypicalPod{share_for_test(4'000, 500), 0.5},
                          TypicalPod{whole_for_test(8'000, 1), 0.5}};

TEST(Fgd, FragmentationByHand) {
  NodePool pool;
  pool.add(node_for_test("a", 16'000, 2));
  EXPECT_EQ(fragmentation(pool.node(0), kTypical), 0);
  pool.take(share_for_test(0, 600), {0, 0b01});
  // Left 400 and 1000: both fit, and neither can use the 400.
  EXPECT_EQ(fragmentation(pool.node(0), kTypical), 400);
  pool.take(share_for_test(0, 400), {0, 0b10});
  // Left 400 and 600: the share cannot use 400, the whole GPU has no place: 200 + 500.
  EXPECT_EQ(fragmentation(pool.node(0), kTypical), 700);
  pool.take(whole_for_test(12'001, 0), {0, 0});
  // 3999 CPU milli are too little for both.
  EXPECT_EQ(fragmentation(pool.node(0), kTypical), 1000);
}

TEST(Fgd, TypesAndPodsWithoutGpu) {
  NodePool pool;
  pool.add(node_for_test("a", 16'000, 2, /*gpu_model=*/3));
  Request other_model = share_for_test(0, 500), this_model = other_model;
  other_model.gpu_types = 1U << 2;
  this_model.gpu_types = 1U << 3;
  const std::array typical{TypicalPod{other_model, 0.25}, TypicalPod{this_model, 0.25},
                           TypicalPod{whole_for_test(0, 0), 0.5}};
  // The wrong type and the pod without GPU leave all 2000 unused: 500 + 0 + 1000.
  EXPECT_EQ(fragmentation(pool.node(0), typical), 1500);
  Fgd policy(typical);
  // GPU 0 has 400 left: 0.75 * 1400 + 0.25 * 400 = 1150; 100 * sigmoid(0.35) = 58.66.
  EXPECT_EQ(policy.score(share_for_test(0, 600), pool.node(0), pool), 58);
}

TEST(Fgd, ScoresByHandAndTheGpuThatWastesLeast) {
  NodePool pool;
  Fgd policy(kTypical);
  RandomStream random(1, "test");
  pool.add(node_for_test("b", 16'000, 2));
  const Request request = share_for_test(2'000, 600);
  // F 0 -> 400: 100 * sigmoid(-0.4) = 40.13.
  EXPECT_EQ(policy.score(request, pool.node(0), pool), 40);
  EXPECT_EQ(policy.choose(request, pool, random)->gpus, 0b01U);
  pool.add(node_for_test("c", 16'000, 2));
  pool.take(share_for_test(0, 400), {1, 0b10});
  // Left 1000 and 600, F = 0.5 * 600. GPU 1 makes it 0: 100 * sigmoid(0.3) = 57.44. GPU 0 would
  // leave 400 and 600, F = 700: 40.13.
  EXPECT_EQ(policy.score(request, pool.node(1), pool), 57);
  const auto place = policy.choose(request, pool, random);
  EXPECT_EQ(place->node, 1U);
  EXPECT_EQ(place->gpus, 0b10U);
}

TEST(Fgd, WholeGpusAndCpuAlone) {
  NodePool pool;
  Fgd policy(kTypical);
  RandomStream random(1, "test");
  pool.add(node_for_test("b", 16'000, 2));
  pool.add(node_for_test("a", 16'000, 2));
  // Nothing is wasted before or after: 50 exactly, on both nodes.
  EXPECT_EQ(policy.score(whole_for_test(1'000, 1), pool.node(0), pool), 50);
  EXPECT_EQ(policy.choose(whole_for_test(1'000, 1), pool, random)->node, 1U);
  // 12000 CPU milli are still enough for both typical pods, 3999 for none: F = 2000,
  // 100 * sigmoid(-2) = 11.92.
  EXPECT_EQ(policy.score(whole_for_test(4'000, 0), pool.node(0), pool), 50);
  EXPECT_EQ(policy.score(whole_for_test(12'001, 0), pool.node(0), pool), 11);
}

}  // namespace
}  // namespace kansoku::simulate::placement
