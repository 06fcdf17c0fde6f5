// SPDX-License-Identifier: Apache-2.0
#include "common/no_destructor.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace kansoku {
namespace {

static_assert(std::is_trivially_destructible_v<NoDestructor<std::vector<int>>>,
              "nothing runs at the end of the process");

TEST(NoDestructor, PassesArgumentsOnAndCanBeChanged) {
  static NoDestructor<std::vector<int>> numbers(std::size_t{3}, 5);
  numbers.get().push_back(6);
  EXPECT_EQ(numbers.get(), (std::vector<int>{5, 5, 5, 6}));
}

}  // namespace
}  // namespace kansoku
