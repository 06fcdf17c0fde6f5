// SPDX-License-Identifier: Apache-2.0
#include "stats/peers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/rng.h"
#include "stats/summary.h"

namespace kansoku::stats {
namespace {

TEST(LeaveOneOut, AgreesWithTheDefinition) {
  Rng rng(3, 1);
  for (std::size_t count = 2; count < 40; ++count) {
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i)  // ties too
      values.push_back(i % 3 == 0 ? 1.0 : std::floor(rng.uniform() * 20) / 4);
    const auto peers = leave_one_out(values);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<double> others = values;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_DOUBLE_EQ(peers[i].centre, median(others)) << count << " " << i;
      EXPECT_DOUBLE_EQ(peers[i].spread, mad(others)) << count << " " << i;
    }
  }
}

TEST(LeaveOneOut, OneHasNoPeers) {
  EXPECT_TRUE(leave_one_out({}).empty());
  const std::vector<double> one{4};
  EXPECT_EQ(leave_one_out(one).front().centre, 0);
}

TEST(ChanceOfShare, IsABinomialTail) {
  EXPECT_DOUBLE_EQ(chance_of_share(0, 5, 4), 1);
  EXPECT_NEAR(chance_of_share(3, 3, 4), 1.0 / 64, 1e-12);
  EXPECT_NEAR(chance_of_share(1, 2, 2), 0.75, 1e-12);
  EXPECT_NEAR(chance_of_share(2, 3, 4), 3 * 3.0 / 64 + 1.0 / 64, 1e-12);
  EXPECT_EQ(chance_of_share(5, 5, 1), 1);
}

}  // namespace
}  // namespace kansoku::stats
