// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/user_shares.h"

#include <gtest/gtest.h>

namespace kansoku::capture {
namespace {

TEST(UserShares, OneUserHasHalfAtMostAndWhatIsGivenBackCanBeTakenAgain) {
  UserShares shares(10);
  EXPECT_EQ(shares.user_max(), 5U);
  EXPECT_TRUE(shares.take(7, 4));
  EXPECT_FALSE(shares.take(7, 2)) << "all or nothing";
  EXPECT_TRUE(shares.take(7));
  EXPECT_FALSE(shares.take(7));
  EXPECT_TRUE(shares.take(8, 5)) << "whatever others have";
  shares.give(7, 2);
  EXPECT_TRUE(shares.take(7, 2));
  EXPECT_FALSE(shares.take(7));
  shares.give(7, 100);
  EXPECT_TRUE(shares.take(7, 5)) << "never less than nothing";
  shares.give(9);
}

}  // namespace
}  // namespace kansoku::capture
