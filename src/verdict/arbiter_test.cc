// SPDX-License-Identifier: Apache-2.0
#include "verdict/arbiter.h"

#include <gtest/gtest.h>

#include <string>

namespace kansoku::verdict {
namespace {

struct Finding {
  std::string kind, detail{};
  std::vector<std::int32_t> ranks{};
  double cost{0}, share{0};
  std::string function{}, file{};
};
Claim claim_of(const Finding& finding) {
  return {finding.kind, finding.detail, finding.ranks, finding.function,
          finding.file, finding.cost,   finding.share};
}
bool explained(const Finding& cause, const Finding& effect, std::size_t members = 4) {
  return explains(claim_of(cause), claim_of(effect), members);
}

TEST(Arbiter, StandingStillComesFirstThenMemoryThenCost) {
  std::vector<Finding> findings{{"slow_input", "", {1}, 40, .4},
                                {"slow_forward", "", {2}, 90, .9},
                                {"memory_pressure", "", {}, 0},
                                {"slow_other", "", {0}, 40, .5},
                                {"hang", "", {3}, 0, 1}};
  put_in_order(findings);
  std::string order;
  for (const Finding& one : findings)
    order += one.kind + " ";
  EXPECT_EQ(order, "hang memory_pressure slow_forward slow_other slow_input ");
}

TEST(Arbiter, EqualOnesStayAsTheyCame) {
  std::vector<Finding> findings{{"a", "", {1}, 5}, {"b", "", {0}, 5}, {"c", "", {2}, 5}};
  put_in_order(findings);
  EXPECT_EQ(findings[0].kind + findings[1].kind + findings[2].kind, "abc");
}

TEST(Arbiter, OnePlaceIsOneFindingIfItIsKnown) {
  const Finding one{"slow_forward", "", {1}, 5, .1, "attend", "model.py"};
  Finding other = one;
  other.ranks = {3};
  EXPECT_TRUE(is_same_place(claim_of(one), claim_of(other)));
  other.file = "other.py";
  EXPECT_FALSE(is_same_place(claim_of(one), claim_of(other)));
  const Finding nowhere{"slow_forward", "", {1}};
  EXPECT_FALSE(is_same_place(claim_of(nowhere), claim_of(nowhere)));
}

TEST(Arbiter, ADeviceExplainsTheSameRanksAlone) {
  const Finding kernel{"slow_kernel", "", {1}};
  EXPECT_TRUE(explained(kernel, {"slow_backward", "", {1}}));
  EXPECT_FALSE(explained(kernel, {"slow_backward", "", {2}}));
  EXPECT_FALSE(explained(kernel, {"cpu_contention", "", {1}}));
  EXPECT_TRUE(explained({"slow_input", "", {1}}, {"gpu_starved", "loader", {1}}));
}

TEST(Arbiter, ADetailThatARowNamesMustBeTheSame) {
  EXPECT_TRUE(explained({"common_input", "", {}}, {"gpu_starved", "loader", {}}));
  EXPECT_FALSE(explained({"common_input", "", {}}, {"gpu_starved", "launch", {}}));
  EXPECT_FALSE(explained({"memory_pressure", "near_limit", {1}}, {"hang", "", {1}}));
}

TEST(Arbiter, DevicesThatWaitInCollectivesWaitForOthers) {
  const Finding waiting{"gpu_starved", "collective", {0, 2}};
  EXPECT_TRUE(explained({"page_faults", "", {1}}, waiting));
  EXPECT_FALSE(explained({"page_faults", "", {1, 2}}, waiting));
  EXPECT_FALSE(explained({"slow_link", "", {}}, waiting)) << "of nobody in particular";
}

TEST(Arbiter, RanksHeldBackAreSlowForThatReasonUnlessAllAre) {
  const Finding some{"cpu_throttled", "", {1, 2}}, all{"cpu_throttled", "", {0, 1, 2, 3}};
  EXPECT_TRUE(explained(some, {"slow_forward", "", {2}}));
  EXPECT_FALSE(explained(some, {"slow_forward", "", {2, 3}}));
  EXPECT_FALSE(explained(all, {"slow_forward", "", {2}}));
  EXPECT_TRUE(explained(all, {"cpu_contention", "", {2}}));
  EXPECT_FALSE(explained(some, {"slow_kernel", "clocked_lower", {1}}))
      << "a device is not held back";
  EXPECT_FALSE(explained(some, {"memory_pressure", "out_of_memory", {1}}));
  EXPECT_TRUE(explained(some, {"gpu_starved", "launch", {1, 2}}));
}

}  // namespace
}  // namespace kansoku::verdict
