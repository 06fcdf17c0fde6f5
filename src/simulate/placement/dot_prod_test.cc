// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/dot_prod.h"

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(DotProd, LeastAlignedWinsAndEqualTruncatedScoresGoToTheSmallerName) {
  NodePool pool;
  DotProd policy;
  RandomStream random(1, "test");
  const Request request = share_for_test(8'000, 500);  // 0.0625 of the CPUs, 0.0625 of the GPUs
  // 1 - (0.5 * 0.0625 + 0.25 * 0.0625) / 2 = 0.97656
  pool.add(node_for_test("m", 64'000, 2));
  // 1 - (0.75 * 0.0625 + 1 * 0.0625) / 2 = 0.94531
  pool.add(node_for_test("a", 96'000, 8));
  EXPECT_EQ(policy.score(request, pool.node(0), pool), 97);
  EXPECT_EQ(policy.score(request, pool.node(1), pool), 94);
  EXPECT_EQ(policy.choose(request, pool, random)->node, 0U);
  // 1 - (0.50781 * 0.0625 + 0.25 * 0.0625) / 2 = 0.97632: also 97 once truncated.
  pool.add(node_for_test("b", 65'000, 2));
  EXPECT_EQ(policy.score(request, pool.node(2), pool), 97);
  EXPECT_EQ(policy.choose(request, pool, random)->node, 2U);
  // Left is before placing: with 7500 of 8000 GPU milli taken "a" is the least aligned.
  pool.take(whole_for_test(88'000, 7), {1, 0b0111'1111});
  pool.take(share_for_test(0, 500), {1, 0b1000'0000});
  // 1 - (0.0625 * 0.0625 + 0.0625 * 0.0625) / 2 = 0.99609
  EXPECT_EQ(policy.score(request, pool.node(1), pool), 99);
  EXPECT_EQ(policy.choose(request, pool, random)->node, 1U);
}

}  // namespace
}  // namespace kansoku::simulate::placement
