// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/random.h"

#include <array>
#include <bit>

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(Random, EachNodeAndEachGpuThatFitsIsAsLikely) {
  NodePool pool;
  Random policy;
  RandomStream random(1, "test");
  for (int i = 0; i < 100; ++i)
    pool.add(node_for_test("n" + std::to_string(i), 8'000, i % 25 == 0 ? 4 : 1));
  for (std::uint32_t i = 0; i < 100; ++i)
    if (i % 25 != 0) pool.take(share_for_test(0, 600), {i, 1});
  for (std::uint32_t i = 0; i < 100; i += 25)
    pool.take(share_for_test(0, 501), {i, 0b0010});
  pool.set_up(75, false);
  // Nodes 0, 25, 50; on each of them GPUs 0, 2, 3. Nine places, 10,000 draws each: standard
  // deviation sqrt(90000 * 1/9 * 8/9) = 94.
  std::array<std::array<int, 4>, 3> counts{};
  for (int i = 0; i < 90'000; ++i) {
    const auto place = policy.choose(share_for_test(1, 500), pool, random);
    ASSERT_TRUE(place && place->node % 25 == 0 && place->node < 75);
    ++counts[place->node / 25][static_cast<std::size_t>(std::countr_zero(place->gpus))];
  }
  for (const auto& node : counts) {
    EXPECT_EQ(node[1], 0);
    for (const std::size_t gpu : {0U, 2U, 3U})
      EXPECT_NEAR(node[gpu], 10'000, 5 * 94);
  }
  EXPECT_EQ(policy.choose(whole_for_test(1, 2), pool, random)->gpus, 0b0101U);
  EXPECT_FALSE(policy.choose(whole_for_test(1, 4), pool, random));
}

}  // namespace
}  // namespace kansoku::simulate::placement
