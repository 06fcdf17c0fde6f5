// SPDX-License-Identifier: Apache-2.0
// Each policy against itself without any cache: the same choices over thousands of random takes,
// returns and failures of nodes, with names in no order, several models and sizes of nodes.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulate/placement/nodes_for_test.h"
#include "simulate/placement/policy.h"
#include "simulate/placement/scored.h"

namespace kansoku::simulate::placement {
namespace {

Node after_on_gpus(Node node, const Request& request, std::uint32_t gpus) {
  node.cpu_left -= request.cpu_milli;
  node.gpu_left_sum = node.gpu_left_max = node.gpus_idle = 0;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    if (((gpus >> gpu) & 1U) != 0) node.gpu_left[gpu] -= request.gpu_milli;
    node.gpu_left_sum += node.gpu_left[gpu];
    node.gpu_left_max = std::max(node.gpu_left_max, node.gpu_left[gpu]);
    node.gpus_idle += node.gpu_left[gpu] == kWholeGpu ? 1 : 0;
  }
  return node;
}

// The best GPUs and score of FGD straight from fragmentation().
std::pair<int, std::uint32_t> fgd_by_definition(const Request& request, const Node& node,
                                                std::span<const TypicalPod> typical) {
  const double before = fragmentation(node, typical);
  const auto score = [&](std::uint32_t gpus) {
    const double after = fragmentation(after_on_gpus(node, request, gpus), typical);
    return static_cast<int>(100.0 / (1.0 + std::exp((after - before) / 1000)));
  };
  if (!request.is_share()) {
    const std::uint32_t gpus = tightest_gpus(request, node);
    return {score(gpus), gpus};
  }
  std::pair<int, std::uint32_t> best{-1, 0};
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    if (node.gpu_left[gpu] < request.gpu_milli) continue;
    if (const int s = score(1U << gpu); s > best.first) best = {s, 1U << gpu};
  }
  return best;
}

std::optional<Placed> choose_anew(std::string_view name, const Policy& policy,
                                  const Request& request, const NodePool& pool,
                                  std::span<const TypicalPod> typical) {
  std::optional<Placed> best;
  int best_score = -1;
  for (std::uint32_t i = 0; i < pool.nodes().size(); ++i) {
    if (!pool.fits(request, i)) continue;
    const Node& node = pool.node(i);
    std::pair<int, std::uint32_t> here{0, tightest_gpus(request, node)};
    if (name == "fgd") {
      here = fgd_by_definition(request, node, typical);
    } else if (name != "first_fit") {
      here.first = dynamic_cast<const ScoredPolicy&>(policy).score(request, node, pool);
    }
    const bool smaller = name != "first_fit" && best && node.name < pool.node(best->node).name;
    if (here.first < best_score || (here.first == best_score && !smaller)) continue;
    best_score = here.first;
    best = Placed{i, here.second};
  }
  return best;
}

Request random_request(RandomStream& random) {
  Request request;
  request.cpu_milli = static_cast<std::int64_t>(500 * random.below(24));
  request.memory_mib = static_cast<std::int64_t>(100'000 * random.below(4));
  switch (random.below(4)) {
    case 0:
      break;
    case 1:
      request.gpus = std::int32_t{1} << random.below(4);
      request.gpu_milli = kWholeGpu;
      break;
    default:
      request.gpus = 1;
      request.gpu_milli = static_cast<std::int32_t>(70 * (1 + random.below(14)));
  }
  if (random.below(4) == 0) request.gpu_types = 1 + random.below(7);
  return request;
}

struct Running {
  Request request;
  Placed where;
};

class Differential : public testing::TestWithParam<std::string_view> {};

TEST_P(Differential, EqualsRecomputationThroughTakesReturnsAndFailures) {
  RandomStream random(7, GetParam());
  std::vector<Request> shapes;
  for (int i = 0; i < 60; ++i)
    shapes.push_back(random_request(random));
  const std::vector<TypicalPod> typical = typical_pods(shapes, 0.8);
  const auto policy = make_policy(GetParam(), typical);
  ASSERT_TRUE(policy);
  NodePool pool;
  std::vector<Running> running;
  const auto add_node = [&] {
    pool.add(node_for_test("n" + std::to_string(random.below(1'000'000)),
                           static_cast<std::int64_t>(16'000 * (1 + random.below(6))),
                           static_cast<std::int32_t>(random.below(9)),
                           static_cast<std::uint32_t>(random.below(3))));
  };
  for (int i = 0; i < 90; ++i)
    add_node();
  for (int step = 0; step < 6'000; ++step) {
    const std::uint64_t dice = random.below(100);
    if (dice < 40 && !running.empty()) {
      const std::size_t at = random.below(running.size());
      pool.give_back(running[at].request, running[at].where);
      running[at] = running.back();
      running.pop_back();
    } else if (dice < 45) {
      const auto node = static_cast<std::uint32_t>(random.below(pool.nodes().size()));
      pool.set_up(node, random.below(3) != 0);
    } else if (dice == 45 && step % 10 == 0) {
      add_node();
    } else {
      const Request& request = shapes[random.below(shapes.size())];
      const auto chosen = policy.value()->choose(request, pool, random);
      if (GetParam() == "random") {
        ASSERT_EQ(chosen.has_value(),
                  choose_anew("first_fit", *policy.value(), request, pool, typical).has_value());
      } else {
        const auto anew = choose_anew(GetParam(), *policy.value(), request, pool, typical);
        ASSERT_EQ(chosen.has_value(), anew.has_value()) << step;
        if (chosen) {
          ASSERT_EQ(chosen->node, anew->node) << step;
          ASSERT_EQ(chosen->gpus, anew->gpus) << step;
        }
      }
      if (!chosen) continue;
      pool.take(request, *chosen);
      running.push_back({request, *chosen});
    }
  }
  EXPECT_GT(running.size(), 20U);
}

INSTANTIATE_TEST_SUITE_P(Each, Differential,
                         testing::ValuesIn(policy_names().begin(), policy_names().end()),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace kansoku::simulate::placement
