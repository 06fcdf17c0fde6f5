// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/pool.h"

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(NodePool, TakesAndGivesBack) {
  NodePool pool;
  pool.add(node_for_test("a", 8'000, 3));
  EXPECT_EQ(pool.gpu_milli_total(), 3'000);
  const Request share = share_for_test(1'000, 400), two = whole_for_test(2'000, 2);
  pool.take(share, {0, 0b010});
  pool.take(two, {0, 0b101});
  const Node& node = pool.node(0);
  EXPECT_EQ(node.cpu_left, 5'000);
  EXPECT_EQ(node.gpu_left_sum, 600);
  EXPECT_EQ(node.gpu_left_max, 600);
  EXPECT_EQ(node.gpus_idle, 0);
  EXPECT_EQ(node.class_count[0], 1U);
  EXPECT_EQ(node.class_count[2], 1U);
  EXPECT_EQ(pool.gpu_milli_used(), 2'400);
  EXPECT_EQ(pool.cpu_milli_used(), 3'000);
  EXPECT_TRUE(pool.fits(share_for_test(5'000, 600), 0));
  EXPECT_FALSE(pool.fits(share_for_test(5'000, 601), 0));
  EXPECT_FALSE(pool.fits(share_for_test(5'001, 600), 0));
  pool.set_up(0, false);
  EXPECT_FALSE(pool.fits(share_for_test(1, 1), 0));
  pool.give_back(two, {0, 0b101});  // work on a failed node ends
  pool.give_back(share, {0, 0b010});
  pool.set_up(0, true);
  EXPECT_EQ(node.gpus_idle, 3);
  EXPECT_EQ(node.class_count[0] + node.class_count[2], 0U);
  EXPECT_EQ(pool.gpu_milli_used() + pool.cpu_milli_used(), 0);
  EXPECT_TRUE(pool.fits(whole_for_test(8'000, 3), 0));
}

TEST(NodePool, RequestsThatMakeNoSenseFitNowhere) {
  NodePool pool;
  pool.add(node_for_test("a", 8'000, 4, /*gpu_model=*/5));
  EXPECT_FALSE(pool.fits({.cpu_milli = -1}, 0));
  EXPECT_FALSE(pool.fits({.memory_mib = -1}, 0));
  EXPECT_FALSE(pool.fits({.gpus = -1}, 0));
  EXPECT_FALSE(pool.fits({.gpus = kGpusPerNodeMax + 1, .gpu_milli = kWholeGpu}, 0));
  EXPECT_FALSE(pool.fits({.gpus = 2, .gpu_milli = 500}, 0));
  EXPECT_FALSE(pool.fits({.gpus = 1, .gpu_milli = 0}, 0));
  EXPECT_FALSE(pool.fits({.gpus = 1, .gpu_milli = 1'001}, 0));
  EXPECT_FALSE(pool.fits({.memory_mib = 1'000'001}, 0));
  EXPECT_TRUE(pool.fits({.gpus = 1, .gpu_milli = 1'000, .gpu_types = 1U << 5}, 0));
  EXPECT_FALSE(pool.fits({.gpus = 1, .gpu_milli = 1'000, .gpu_types = 1U << 4}, 0));
  EXPECT_TRUE(pool.fits({.gpu_types = 1U << 4}, 0));  // no GPU asked for: the type does not matter
}

TEST(NodePool, TheJournalNamesEachChange) {
  NodePool pool;
  pool.add(node_for_test("a", 8'000, 1));
  pool.add(node_for_test("b", 8'000, 1));
  EXPECT_EQ(pool.change_count(), 2U);
  pool.set_up(1, true);  // no change
  EXPECT_EQ(pool.change_count(), 2U);
  pool.take(share_for_test(1, 1), {1, 1});
  pool.take(share_for_test(1, 1), {0, 1});
  EXPECT_EQ(pool.changed_node(3), 1U);
  EXPECT_EQ(pool.changed_node(4), 0U);
  EXPECT_EQ(pool.node(1).version, 3U);
  EXPECT_EQ(pool.node(0).version, 4U);
}

TEST(NodePoolDeathTest, TakingWhatIsNotThere) {
  NodePool pool;
  pool.add(node_for_test("a", 8'000, 2));
  pool.take(share_for_test(0, 600), {0, 0b01});
  EXPECT_DEATH(pool.take(share_for_test(0, 500), {0, 0b01}), "gpu_left");
  EXPECT_DEATH(pool.take(share_for_test(0, 500), {0, 0b11}), "names_gpus_of");
  EXPECT_DEATH(pool.take(share_for_test(0, 500), {0, 0b100}), "names_gpus_of");
  EXPECT_DEATH(pool.give_back(share_for_test(0, 601), {0, 0b01}), "kWholeGpu");
  EXPECT_DEATH(pool.give_back(share_for_test(1, 600), {0, 0b01}), "cpu_milli");
}

}  // namespace
}  // namespace kansoku::simulate::placement
