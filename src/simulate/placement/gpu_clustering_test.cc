// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/gpu_clustering.h"

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(GpuClustering, KeepsKindsOfRequestsApart) {
  NodePool pool;
  GpuClustering policy;
  pool.add(node_for_test("a", 96'000, 8));
  const Node& node = pool.node(0);
  const Request share = share_for_test(1'000, 500), two = whole_for_test(1'000, 2);
  // Empty: 25 * (8000 - 8000) / 8000 + 25.
  EXPECT_EQ(policy.score(two, node, pool), 25);
  pool.take(two, {0, 0b11});
  // 25 * 2000 / 8000 = 6.25 truncated; + 75 for the same kind alone, + 0 for another.
  EXPECT_EQ(policy.score(two, node, pool), 81);
  EXPECT_EQ(policy.score(share, node, pool), 6);
  EXPECT_EQ(policy.score(whole_for_test(0, 1), node, pool), 6);
  pool.take(share, {0, 0b100});
  // 25 * 2500 / 8000 = 7.8 truncated; + 50 for a kind among others.
  EXPECT_EQ(policy.score(two, node, pool), 57);
  EXPECT_EQ(policy.score(share, node, pool), 57);
  EXPECT_EQ(policy.score(whole_for_test(0, 4), node, pool), 7);
  EXPECT_EQ(policy.score(whole_for_test(1'000, 0), node, pool), 0);
  pool.give_back(share, {0, 0b100});
  EXPECT_EQ(policy.score(two, node, pool), 81);
}

TEST(GpuClustering, ASmallEmptyNodeBeatsALargeOneAndEqualsGoToTheSmallerName) {
  NodePool pool;
  GpuClustering policy;
  RandomStream random(1, "test");
  pool.add(node_for_test("c", 96'000, 8));
  pool.add(node_for_test("b", 96'000, 2));
  pool.add(node_for_test("a", 64'000, 2));
  // 25 * (8000 - 2000) / 8000 = 18.75 truncated, + 25.
  EXPECT_EQ(policy.score(share_for_test(0, 1), pool.node(1), pool), 43);
  EXPECT_EQ(policy.choose(share_for_test(0, 1), pool, random)->node, 2U);
  // Without GPU all are equal.
  EXPECT_EQ(policy.choose(whole_for_test(1, 0), pool, random)->node, 2U);
  EXPECT_EQ(policy.choose(whole_for_test(64'001, 0), pool, random)->node, 1U);
}

}  // namespace
}  // namespace kansoku::simulate::placement
