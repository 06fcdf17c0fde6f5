// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/gpu_packing.h"

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(GpuPacking, GpusInUseThenNodesInUseThenIdleNodes) {
  NodePool pool;
  GpuPacking policy;
  pool.add(node_for_test("a", 96'000, 8));
  pool.add(node_for_test("b", 96'000, 2));
  const Node& node = pool.node(0);
  // Idle nodes: max(33 - 8, 8) and max(33 - 2, 2); without GPU 0.
  EXPECT_EQ(policy.score(share_for_test(0, 400), node, pool), 25);
  EXPECT_EQ(policy.score(share_for_test(0, 400), pool.node(1), pool), 31);
  EXPECT_EQ(policy.score(whole_for_test(0, 0), node, pool), 0);
  pool.take(share_for_test(0, 540), {0, 0b1});
  // GPU 0 has 460 left: 46 %, 100 - 4.
  EXPECT_EQ(policy.score(share_for_test(0, 460), node, pool), 96);
  // It needs an idle GPU: 50 - 1; three: 50 - 3.
  EXPECT_EQ(policy.score(share_for_test(0, 461), node, pool), 49);
  EXPECT_EQ(policy.score(whole_for_test(0, 3), node, pool), 47);
  // The tightest counts: 39 left is 3 %, 100 - 0.
  pool.take(share_for_test(0, 961), {0, 0b10});
  EXPECT_EQ(policy.score(share_for_test(0, 39), node, pool), 100);
  EXPECT_EQ(policy.score(share_for_test(0, 40), node, pool), 96);
}

TEST(GpuPacking, EqualsGoToTheSmallerName) {
  NodePool pool;
  GpuPacking policy;
  RandomStream random(1, "test");
  pool.add(node_for_test("b", 96'000, 2));
  pool.add(node_for_test("a", 96'000, 2));
  // 460 and 450 left are both 100 - 4.
  pool.take(share_for_test(0, 550), {0, 0b1});
  pool.take(share_for_test(0, 540), {1, 0b1});
  EXPECT_EQ(policy.choose(share_for_test(0, 400), pool, random)->node, 1U);
  EXPECT_EQ(policy.choose(share_for_test(0, 455), pool, random)->node, 1U);
  pool.set_up(1, false);
  EXPECT_EQ(policy.choose(share_for_test(0, 400), pool, random)->node, 0U);
}

}  // namespace
}  // namespace kansoku::simulate::placement
