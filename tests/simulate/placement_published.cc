// SPDX-License-Identifier: Apache-2.0
// The published openb runs again, seed by seed, with the random numbers they were made with: the
// five policies that do not draw in several threads, four lists of pods, ten seeds. Each of the 131
// values of a curve has to be the published one up to its rounding. `placement_published <folder
// with alibaba_openb_v2023/>`. Exit status 1 if a bar is missed, 77 without data.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "openb_data.h"
#include "published_random.h"

namespace kansoku::simulate::placement {
namespace {

// Ten numbers are drawn before the nodes get theirs: found by trying, with any other count the runs
// differ. Most likely the scheduler's client draws one for each of its watches.
constexpr int kOtherDraws = 10;
// A published value is the rounded mean of rounded records: half a hundredth twice.
constexpr double kRounding = 0.01001;

// Draws of the published simulator, in its order: one number for a log line, the shuffle, the
// copies, ten numbers of something else, the numbers of the nodes.
InflationPlan published_plan(const std::vector<NamedRequest>& pods, const std::vector<Node>& nodes,
                             int seed) {
  PublishedRandom random(static_cast<std::uint32_t>(seed));
  static_cast<void>(random.next_63_bits());
  InflationPlan plan;
  plan.arrivals.resize(pods.size());
  std::iota(plan.arrivals.begin(), plan.arrivals.end(), 0U);
  random.shuffle(plan.arrivals);
  std::int64_t asked = 0, total = 0;
  for (const NamedRequest& pod : pods)
    asked += pod.request.gpu_milli_sum();
  for (const Node& node : nodes)
    total += std::int64_t{node.gpus} * kWholeGpu;
  for (;;) {
    const std::uint32_t copy = random.below(static_cast<std::uint32_t>(pods.size()));
    const Request& request = pods[copy].request;
    if (static_cast<double>(asked + request.gpu_milli) > kLoad * static_cast<double>(total)) break;
    asked += request.gpu_milli_sum();
    plan.arrivals.push_back(copy);
  }
  for (int i = 0; i < kOtherDraws; ++i)
    static_cast<void>(random.next_63_bits());
  plan.node_number = random.permutation(static_cast<std::uint32_t>(nodes.size()));
  return plan;
}

using Gaps = std::array<double, kMetrics.size()>;  // the largest of any load

Gaps gaps_of(const OpenbData& data, std::string_view list, const PolicyName& name, int seed) {
  const OpenbData::List& input = data.lists.at(list);
  const InflationPlan plan = published_plan(input.pods, data.nodes, seed);
  const auto policy = make_policy(name.ours, input.typical);
  const InflationCurves curves =
      run_inflation(input.pods, data.nodes, plan, *policy.value(), input.typical, {});
  const auto ours = by_metric(curves);
  Gaps gaps{};
  for (std::size_t m = 0; m < kMetrics.size(); ++m) {
    const std::vector<double>& published = data.curve(kMetrics[m], list, name, seed);
    for (std::size_t load = 0; load < published.size(); ++load)
      gaps[m] = std::max(gaps[m], std::abs((*ours[m])[load] - published[load]));
  }
  return gaps;
}

// Returns how many of the ten runs are the published ones.
int run_seeds(const OpenbData& data, std::string_view list, const PolicyName& name) {
  int same = 0;
  Gaps worst{};
  for (int seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    const Gaps gaps = gaps_of(data, list, name, seed);
    same += gaps[0] <= kRounding ? 1 : 0;
    for (std::size_t m = 0; m < gaps.size(); ++m)
      worst[m] = std::max(worst[m], gaps[m]);
  }
  fmt::print("{:<12} {:<15} {:2} of {}  {:.4f} {:.4f} {:.4f}\n", list, name.ours, same, kSeeds,
             worst[0], worst[1], worst[2]);
  return same;
}

int run(const std::string& folder) {
  const OpenbData data = read_openb(folder);
  if (data.published.empty()) {
    fmt::print("skipped: no openb data in {}\n", folder);
    return 77;
  }
  fmt::print(
      "runs whose allocation is the published one at all 131 loads, and the largest gap of "
      "all: allocation, frag, frag_ratio (percentage points)\n");
  int same = 0, runs = 0;
  for (const std::string_view list : kLists) {
    for (const PolicyName& name : kPolicies) {
      if (name.ours == "random") continue;
      same += run_seeds(data, list, name);
      runs += kSeeds;
    }
  }
  fmt::print("\nthe published allocation: {} of {} runs (bar: all)\n", same, runs);
  return same == runs ? 0 : 1;
}

}  // namespace
}  // namespace kansoku::simulate::placement

int main(int argc, char** argv) {
  return argc == 2 ? kansoku::simulate::placement::run(argv[1]) : 2;
}
