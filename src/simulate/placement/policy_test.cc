// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/policy.h"

#include <vector>

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"

namespace kansoku::simulate::placement {
namespace {

TEST(Policy, EachNameMakesOne) {
  EXPECT_EQ(policy_names().size(), 7U);
  for (const std::string_view name : policy_names())
    EXPECT_TRUE(make_policy(name, {})) << name;
  const auto unknown = make_policy("spread", {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kNotFound);
  EXPECT_EQ(unknown.error().what, "placement policy spread: not found");
  EXPECT_EQ(unknown.error().hint,
            "one of random, dot_prod, gpu_clustering, gpu_packing, best_fit, fgd, first_fit");
}

TEST(Policy, TypicalPodsByCountThenByCpu) {
  std::vector<Request> requests(5, share_for_test(1'000, 200));
  requests[4].memory_mib = 7;  // memory does not tell two apart
  for (const std::int64_t cpu : {2'000, 4'000, 3'000})
    requests.insert(requests.end(), 2, whole_for_test(cpu, 1));
  requests.push_back(whole_for_test(9'000, 8));
  // 12 requests, counts 5 2 2 2 1; 0.75 of them is 9: reached with the third shape.
  const std::vector<TypicalPod> typical = typical_pods(requests, 0.75);
  ASSERT_EQ(typical.size(), 3U);
  EXPECT_EQ(typical[0].request, share_for_test(1'000, 200));
  EXPECT_DOUBLE_EQ(typical[0].share, 5.0 / 9);
  EXPECT_EQ(typical[1].request, whole_for_test(4'000, 1));
  EXPECT_EQ(typical[2].request, whole_for_test(3'000, 1));
  EXPECT_DOUBLE_EQ(typical[2].share, 2.0 / 9);
  EXPECT_EQ(typical_pods(requests, 1.0).size(), 5U);
  EXPECT_TRUE(typical_pods({}).empty());
}

}  // namespace
}  // namespace kansoku::simulate::placement
