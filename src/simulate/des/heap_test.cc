// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/rng.h"

namespace kansoku::simulate::des {
namespace {

struct Places {
  std::map<int, std::size_t>* at;
  void moved(int entry, std::size_t position) const { (*at)[entry] = position; }
};

TEST(Heap4, GivesBackInOrderWhateverTheInsertionOrder) {
  for (int size = 0; size < 40; ++size) {
    std::map<int, std::size_t> places;
    Heap4<int, Places> heap(Places{&places});
    for (int i = 0; i < size; ++i)
      heap.push((i * 17) % 41);
    std::vector<int> out;
    while (!heap.empty()) {
      EXPECT_EQ(heap.top(), heap.top());
      out.push_back(heap.pop());
    }
    EXPECT_TRUE(std::is_sorted(out.begin(), out.end()));
    EXPECT_EQ(out.size(), static_cast<std::size_t>(size));
  }
}

TEST(Heap4, PushFillsTheOpenRoot) {
  std::map<int, std::size_t> places;
  Heap4<int, Places> heap(Places{&places});
  heap.push(1);
  EXPECT_EQ(heap.pop(), 1);
  EXPECT_TRUE(heap.empty());
  heap.push(5);
  EXPECT_EQ(heap.size(), 1U);
  EXPECT_EQ(places[5], 0U);
  heap.push(3);
  EXPECT_EQ(heap.pop(), 3);
  heap.push(4);  // sinks from the open root
  EXPECT_EQ(heap.size(), 2U);
  EXPECT_EQ(heap.pop(), 4);
  EXPECT_EQ(heap.top(), 5);
}

TEST(Heap4, ErasesTheLastEntryUnderAnOpenRoot) {
  std::map<int, std::size_t> places;
  Heap4<int, Places> heap(Places{&places});
  heap.push(1);
  heap.push(2);
  EXPECT_EQ(heap.pop(), 1);
  heap.erase(places[2]);
  EXPECT_TRUE(heap.empty());
  heap.push(7);
  EXPECT_EQ(heap.pop(), 7);
  EXPECT_TRUE(heap.empty());
}

// Random operations beside std::set; several mixes, so that the heap grows, shrinks and empties.
void compare_with_set(std::uint64_t seed, std::uint64_t push_share, int steps) {
  std::map<int, std::size_t> places;
  Heap4<int, Places> heap(Places{&places});
  std::set<int> model;
  Rng rng(seed);
  for (int step = 0; step < steps; ++step) {
    const std::uint64_t what = rng.below(100);
    const int floor = model.empty() ? 0 : *model.begin();
    if (what < push_share) {
      const int entry = floor + static_cast<int>(rng.below(1'000'000));
      if (model.insert(entry).second) heap.push(entry);
    } else if (what < push_share + (100 - push_share) / 2) {
      if (model.empty()) continue;
      ASSERT_EQ(heap.pop(), *model.begin());
      model.erase(model.begin());
    } else if (!model.empty()) {
      auto victim = model.lower_bound(floor + static_cast<int>(rng.below(1'000'000)));
      if (victim == model.end()) victim = std::prev(victim);
      heap.erase(places[*victim]);
      model.erase(victim);
    }
    ASSERT_EQ(heap.size(), model.size());
    ASSERT_EQ(heap.empty(), model.empty());
    ASSERT_TRUE(what % 7 != 0 || model.empty() || heap.top() == *model.begin());
  }
}

TEST(Heap4, AgreesWithASetInRandomOperations) {
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    compare_with_set(seed, 20 + seed * 2, 3000);
}

}  // namespace
}  // namespace kansoku::simulate::des
