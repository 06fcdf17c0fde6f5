// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/inflation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

namespace kansoku::simulate::placement {
namespace {

template <class Named>
std::vector<std::uint32_t> by_name(std::span<const Named> items) {
  std::vector<std::uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return items[a].name < items[b].name; });
  return order;
}

void shuffle(std::vector<std::uint32_t>& items, RandomStream& random) {
  for (std::size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[random.below(i)]);
}

std::int64_t gpu_milli_of(std::span<const Node> nodes) {
  std::int64_t total = 0;
  for (const Node& node : nodes)
    total += std::int64_t{node.gpus} * kWholeGpu;
  return total;
}

// Sums of a record's figures by the load they were taken at.
class Curve {
 public:
  explicit Curve(int load_max) : sum_(bins(load_max)), count_(bins(load_max)) {}

  void add(std::size_t load, double value) {
    if (load >= sum_.size()) return;
    sum_[load] += value;
    count_[load] += 1;
  }
  [[nodiscard]] std::vector<double> means() const {
    std::vector<double> means;
    for (std::size_t load = 0; load + 1 < sum_.size(); ++load) {
      double sum = sum_[load], count = count_[load];
      if (count == 0) {
        sum = sum_[load + 1] + (load > 0 ? sum_[load - 1] : 0);
        count = count_[load + 1] + (load > 0 ? count_[load - 1] : 0);
      }
      means.push_back(count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN());
    }
    return means;
  }

 private:
  // One more than asked for: the neighbour of the last.
  static std::size_t bins(int load_max) { return static_cast<std::size_t>(load_max) + 2; }
  std::vector<double> sum_, count_;
};

NodePool numbered_pool(std::span<const Node> nodes, const InflationPlan& plan) {
  NodePool pool;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Node node = nodes[i];
    char number[16];
    std::snprintf(number, sizeof number, "%04u-", plan.node_number[i]);
    node.name.insert(0, number);
    node.up = true;
    pool.add(std::move(node));
  }
  return pool;
}

}  // namespace

InflationPlan plan_inflation(std::span<const NamedRequest> requests, std::span<const Node> nodes,
                             double load, std::uint64_t seed) {
  InflationPlan plan;
  const auto target = load * static_cast<double>(gpu_milli_of(nodes));
  std::int64_t asked = 0;
  for (const NamedRequest& each : requests)
    asked += each.request.gpu_milli_sum();
  if (asked <= 0 || target <= 0) return plan;

  RandomStream order(seed, "inflation.order"), copies(seed, "inflation.copies"),
      numbers(seed, "inflation.nodes");
  const std::vector<std::uint32_t> sorted = by_name(requests);
  plan.arrivals = sorted;
  shuffle(plan.arrivals, order);
  for (;;) {
    const std::uint32_t copy = sorted[copies.below(sorted.size())];
    const Request& request = requests[copy].request;
    if (static_cast<double>(asked + request.gpu_milli) > target) break;
    asked += request.gpu_milli_sum();
    plan.arrivals.push_back(copy);
  }
  std::vector<std::uint32_t> permutation(nodes.size());
  std::iota(permutation.begin(), permutation.end(), 0U);
  shuffle(permutation, numbers);
  plan.node_number.resize(nodes.size());
  const std::vector<std::uint32_t> named = by_name(nodes);
  for (std::size_t i = 0; i < named.size(); ++i)
    plan.node_number[named[i]] = permutation[i];
  return plan;
}

InflationCurves run_inflation(std::span<const NamedRequest> requests, std::span<const Node> nodes,
                              const InflationPlan& plan, Policy& policy,
                              std::span<const TypicalPod> typical,
                              const InflationOptions& options) {
  CHECK(plan.arrivals.empty() || plan.node_number.size() == nodes.size());
  InflationCurves curves;
  Curve allocation(options.load_max), frag(options.load_max), frag_ratio(options.load_max);
  if (plan.arrivals.empty()) return curves;
  NodePool pool = numbered_pool(nodes, plan);
  RandomStream random(options.seed, "inflation.policy");
  const auto total = static_cast<double>(pool.gpu_milli_total());
  double frag_sum = 0;
  for (std::uint32_t i = 0; options.with_frag && i < pool.nodes().size(); ++i)
    frag_sum += fragmentation(pool.node(i), typical);
  std::int64_t asked = 0;
  for (const std::uint32_t index : plan.arrivals) {
    const Request& request = requests[index].request;
    asked += request.gpu_milli_sum();
    ++curves.arrived;
    if (const auto place = policy.choose(request, pool, random)) {
      const Node& node = pool.node(place->node);
      if (options.with_frag) frag_sum -= fragmentation(node, typical);
      pool.take(request, *place);
      if (options.with_frag) frag_sum += fragmentation(node, typical);
    } else {
      ++curves.dropped;
    }
    const double percent = 100.0 * static_cast<double>(asked) / total;
    const auto load = static_cast<std::size_t>(std::nearbyint(percent));
    const auto used = static_cast<double>(pool.gpu_milli_used());
    allocation.add(load, 100.0 * used / total);
    if (!options.with_frag) continue;
    frag.add(load, 100.0 * frag_sum / total);
    if (used < total) frag_ratio.add(load, 100.0 * frag_sum / (total - used));
  }
  curves.allocation = allocation.means();
  if (options.with_frag) {
    curves.frag = frag.means();
    curves.frag_ratio = frag_ratio.means();
  }
  return curves;
}

}  // namespace kansoku::simulate::placement
