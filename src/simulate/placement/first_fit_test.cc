// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/first_fit.h"

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(FirstFit, FollowsTheOrderOfThePoolNotOfTheNames) {
  NodePool pool;
  FirstFit policy;
  RandomStream random(1, "test");
  pool.add(node_for_test("c", 4'000, 1));
  pool.add(node_for_test("b", 8'000, 2));
  pool.add(node_for_test("a", 8'000, 2));
  EXPECT_EQ(policy.choose(share_for_test(4'000, 500), pool, random)->node, 0U);
  EXPECT_EQ(policy.choose(whole_for_test(4'001, 2), pool, random)->node, 1U);
  EXPECT_EQ(policy.choose(whole_for_test(4'001, 2), pool, random)->gpus, 0b11U);
  pool.set_up(1, false);
  EXPECT_EQ(policy.choose(whole_for_test(4'001, 2), pool, random)->node, 2U);
  EXPECT_FALSE(policy.choose(whole_for_test(4'001, 3), pool, random));
  pool.add(node_for_test("d", 8'000, 3));
  EXPECT_EQ(policy.choose(whole_for_test(4'001, 3), pool, random)->node, 3U);
}

}  // namespace
}  // namespace kansoku::simulate::placement
