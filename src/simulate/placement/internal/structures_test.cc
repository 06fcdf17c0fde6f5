// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "common/rng.h"

#include "simulate/placement/internal/classes.h"
#include "simulate/placement/internal/place_set.h"
#include "simulate/placement/internal/score_tree.h"
#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement::internal {
namespace {

TEST(ScoreTree, FirstOfTheBest) {
  for (const std::size_t places : {1U, 2U, 3U, 64U, 65U}) {
    RandomStream random(places, "tree");
    ScoreTree tree(places);
    EXPECT_EQ(tree.best_score(), -1);
    std::vector<int> scores(places, -1);
    for (int i = 0; i < 2'000; ++i) {
      const std::size_t at = random.below(places);
      scores[at] = static_cast<int>(random.below(8)) - 1;
      tree.set(at, scores[at]);
      const auto best = std::max_element(scores.begin(), scores.end());
      ASSERT_EQ(tree.best_score(), *best);
      ASSERT_EQ(tree.best_place(), static_cast<std::size_t>(best - scores.begin()));
    }
  }
}

TEST(PlaceSet, MembersByRank) {
  PlaceSet set(200);
  const std::vector<std::size_t> members{0, 63, 64, 128, 199};
  for (const std::size_t place : members) {
    set.set(place, true);
    set.set(place, true);
  }
  ASSERT_EQ(set.count(), members.size());
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    EXPECT_EQ(set.member(rank), members[rank]);
  set.set(63, false);
  EXPECT_EQ(set.member(1), 64U);
}

// Each node once, whether it changed once or often, lately or before the journal's reach.
TEST(Classes, RefreshTouchesEachChangedNodeOnce) {
  NodePool pool;
  for (int i = 0; i < 5; ++i)
    pool.add(node_for_test(std::string(1, static_cast<char>('e' - i)), 1'000'000, 1));
  struct Count {
    explicit Count(std::size_t places) : updates(places) {}
    std::vector<int> updates;
  };
  Classes<Count> classes;
  const auto update = [](Count& count, std::size_t place, std::uint32_t) {
    ++count.updates[place];
  };
  const Request request = whole_for_test(1, 0);
  EXPECT_EQ(classes.refresh(request, pool, update).updates, std::vector<int>(5, 1));
  EXPECT_EQ(classes.node_at(0), 4U);
  pool.take(request, {3, 0});
  pool.take(request, {3, 0});
  EXPECT_EQ(classes.refresh(request, pool, update).updates, (std::vector<int>{1, 2, 1, 1, 1}));
  for (std::uint64_t i = 0; i < 2 * NodePool::kJournal; ++i)
    pool.take(request, {i % 2 == 0 ? 0U : 4U, 0});
  EXPECT_EQ(classes.refresh(request, pool, update).updates, (std::vector<int>{2, 2, 1, 1, 2}));
  EXPECT_EQ(classes.refresh(request, pool, update).updates, (std::vector<int>{2, 2, 1, 1, 2}));
}

TEST(Classes, ForgetsAllBeyondItsBound) {
  NodePool pool;
  pool.add(node_for_test("a", 1'000'000, 1));
  Classes<ScoreTree> classes;
  const auto update = [](ScoreTree& tree, std::size_t place, std::uint32_t node) {
    tree.set(place, static_cast<int>(node) + 1);
  };
  for (std::int64_t cpu = 0; cpu < 2 * 4096 + 10; ++cpu)
    ASSERT_EQ(classes.refresh(whole_for_test(cpu, 0), pool, update).best_score(), 1);
}

}  // namespace
}  // namespace kansoku::simulate::placement::internal
