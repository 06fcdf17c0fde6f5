// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/best_fit.h"

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(BestFit, LeastLeftAfterwardsWinsAndEqualTruncatedScoresGoToTheSmallerName) {
  NodePool pool;
  BestFit policy;
  RandomStream random(1, "test");
  const Request request = share_for_test(8'000, 500);
  // 1 - 56000/128000/2 - 1500/8000/2 = 1 - 0.21875 - 0.09375 = 0.6875
  pool.add(node_for_test("m", 64'000, 2));
  // 1 - 88000/128000/2 - 7500/8000/2 = 1 - 0.34375 - 0.46875 = 0.1875
  pool.add(node_for_test("a", 96'000, 8));
  EXPECT_EQ(policy.score(request, pool.node(0), pool), 68);
  EXPECT_EQ(policy.score(request, pool.node(1), pool), 18);
  EXPECT_EQ(policy.choose(request, pool, random)->node, 0U);
  // 1 - 56500/128000/2 - 0.09375 = 0.68555: also 68 once truncated, and "b" < "m".
  pool.add(node_for_test("b", 64'500, 2));
  EXPECT_EQ(policy.score(request, pool.node(2), pool), 68);
  EXPECT_EQ(policy.choose(request, pool, random)->node, 2U);
}

TEST(BestFit, ASharesGpuIsTheTightest) {
  NodePool pool;
  BestFit policy;
  RandomStream random(1, "test");
  pool.add(node_for_test("a", 64'000, 4));
  pool.take(share_for_test(0, 300), {0, 0b0010});
  pool.take(share_for_test(0, 600), {0, 0b0100});
  pool.take(share_for_test(0, 600), {0, 0b1000});
  // Left: 1000, 700, 400, 400.
  EXPECT_EQ(policy.choose(share_for_test(0, 400), pool, random)->gpus, 0b0100U);
  EXPECT_EQ(policy.choose(share_for_test(0, 401), pool, random)->gpus, 0b0010U);
  EXPECT_EQ(policy.choose(share_for_test(0, 701), pool, random)->gpus, 0b0001U);
  EXPECT_FALSE(policy.choose(whole_for_test(0, 2), pool, random));
  EXPECT_EQ(policy.choose(whole_for_test(0, 1), pool, random)->gpus, 0b0001U);
}

TEST(BestFit, ALargerNodeThanOpenbsRescalesAll) {
  NodePool pool;
  BestFit policy;
  pool.add(node_for_test("a", 256'000, 16));
  pool.add(node_for_test("b", 64'000, 2));
  // Against 256 CPUs and 16 GPUs: 1 - 56000/256000/2 - 1500/16000/2 = 0.84375
  EXPECT_EQ(policy.score(share_for_test(8'000, 500), pool.node(1), pool), 84);
  // 1 - 248000/256000/2 - 15500/16000/2 = 0.03125
  EXPECT_EQ(policy.score(share_for_test(8'000, 500), pool.node(0), pool), 3);
}

}  // namespace
}  // namespace kansoku::simulate::placement
