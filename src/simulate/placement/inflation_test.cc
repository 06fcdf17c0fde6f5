// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/inflation.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "simulate/placement/first_fit.h"
#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(Inflation, PlanHasEachRequestOnceThenCopiesUpToTheLoad) {
  std::vector<NamedRequest> requests;
  for (int i = 0; i < 6; ++i)
    requests.push_back({"p" + std::to_string(i), share_for_test(1, 500)});
  const std::vector nodes{node_for_test("b", 1, 2), node_for_test("a", 1, 2)};
  const InflationPlan plan = plan_inflation(requests, nodes, 1.3, 42);
  // 1.3 * 4000 = 5200: ten requests of 500.
  ASSERT_EQ(plan.arrivals.size(), 10U);
  std::vector<std::uint32_t> first(plan.arrivals.begin(), plan.arrivals.begin() + 6);
  std::sort(first.begin(), first.end());
  EXPECT_EQ(first, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(plan.node_number[0] + plan.node_number[1], 1U);
  const InflationPlan again = plan_inflation(requests, nodes, 1.3, 42);
  EXPECT_EQ(again.arrivals, plan.arrivals);
  // Names decide, not the order they are given in.
  std::vector<NamedRequest> turned(requests.rbegin(), requests.rend());
  const InflationPlan same = plan_inflation(turned, nodes, 1.3, 42);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(turned[same.arrivals[i]].name, requests[plan.arrivals[i]].name);
  EXPECT_NE(plan_inflation(requests, nodes, 1.3, 43).arrivals, plan.arrivals);
}

TEST(Inflation, NothingToInflate) {
  const std::vector<NamedRequest> no_gpu{{"p", whole_for_test(1, 0)}};
  const std::vector nodes{node_for_test("a", 1, 2)};
  EXPECT_TRUE(plan_inflation(no_gpu, nodes, 1.3, 1).arrivals.empty());
  EXPECT_TRUE(plan_inflation({}, nodes, 1.3, 1).arrivals.empty());
  const std::vector<NamedRequest> one{{"p", whole_for_test(1, 1)}};
  EXPECT_TRUE(plan_inflation(one, {}, 1.3, 1).arrivals.empty());
}

TEST(Inflation, CurvesByHand) {
  // One node of one GPU; a whole GPU does not fit after a share of 0.6, another share does.
  const std::vector<NamedRequest> requests{
      {"a", share_for_test(1, 600)}, {"b", whole_for_test(1, 1)}, {"c", share_for_test(1, 400)}};
  const std::vector nodes{node_for_test("n", 10, 1)};
  const InflationPlan plan{{0, 1, 2}, {0}};
  const std::vector<TypicalPod> typical{{share_for_test(1, 500), 1.0}};
  FirstFit policy;
  const InflationCurves curves =
      run_inflation(requests, nodes, plan, policy, typical, {.load_max = 200});
  EXPECT_EQ(curves.arrived, 3U);
  EXPECT_EQ(curves.dropped, 1U);
  // Arrived 60, 160, 200 %; taken 60, 60, 100 %. Left 400 of which 500 can use nothing: 40 %.
  EXPECT_DOUBLE_EQ(curves.allocation[60], 60);
  EXPECT_DOUBLE_EQ(curves.allocation[61], 60);  // the neighbour's
  EXPECT_TRUE(std::isnan(curves.allocation[62]));
  EXPECT_DOUBLE_EQ(curves.allocation[160], 60);
  EXPECT_DOUBLE_EQ(curves.allocation[200], 100);
  EXPECT_DOUBLE_EQ(curves.frag[60], 40);
  EXPECT_DOUBLE_EQ(curves.frag_ratio[160], 100);
  EXPECT_DOUBLE_EQ(curves.frag[200], 0);
  EXPECT_TRUE(std::isnan(curves.frag_ratio[200]));  // nothing is left
}

}  // namespace
}  // namespace kansoku::simulate::placement
