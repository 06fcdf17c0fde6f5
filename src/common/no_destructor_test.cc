// SPDX-License-Identifier: Apache-2.0
#include "common/no_destructor.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>
#include <vector>

namespace kansoku {
namespace {

TEST(NoDestructor, KeepsItsValueWhenItEnds) {
  const auto seen = std::make_shared<int>(7);
  std::weak_ptr<int> held;
  alignas(NoDestructor<std::shared_ptr<int>>)
      std::byte room[sizeof(NoDestructor<std::shared_ptr<int>>)];
  {
    auto* const kept = std::construct_at(
        reinterpret_cast<NoDestructor<std::shared_ptr<int>>*>(room), std::shared_ptr<int>(seen));
    held = kept->get();
    EXPECT_EQ(*kept->get(), 7);
    std::destroy_at(kept);
    EXPECT_EQ(seen.use_count(), 2);
    kept->get().reset();
  }
  EXPECT_EQ(held.use_count(), 1);
  static_assert(std::is_trivially_destructible_v<NoDestructor<std::vector<int>>>);
}

TEST(NoDestructor, PassesArgumentsOnAndCanBeChanged) {
  static NoDestructor<std::vector<int>> numbers(std::size_t{3}, 5);
  numbers.get().push_back(6);
  EXPECT_EQ(numbers.get(), (std::vector<int>{5, 5, 5, 6}));
}

}  // namespace
}  // namespace kansoku
