// SPDX-License-Identifier: Apache-2.0
// The six placement policies of openb against their published curves: four lists of pods, ten
// seeds each, in our own random order. `placement_golden <folder with alibaba_openb_v2023/>`. Exit
// status 1 if a bar is missed, 77 without data.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "openb_data.h"
#include "sys/clock.h"

namespace kansoku::simulate::placement {
namespace {

struct Range {
  double mean{0}, min{INFINITY}, max{-INFINITY};
  void add(double value) {
    mean += value / kSeeds;
    min = std::min(min, value);
    max = std::max(max, value);
  }
};
struct Cell {
  Range ours, published;
};
// By list, policy, metric and load.
using Cells = std::map<std::tuple<std::string_view, std::string_view, std::string_view, int>, Cell>;

// Ten experiments of one list and one policy; returns the seconds of one.
double run_seeds(const OpenbData& data, std::string_view list, const PolicyName& name,
                 Cells& cells) {
  const OpenbData::List& input = data.lists.at(list);
  double seconds = 0;
  for (int seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    const auto unsigned_seed = static_cast<std::uint64_t>(seed);
    const BootTime start = sys::RealClock().now();
    const InflationPlan plan = plan_inflation(input.pods, data.nodes, kLoad, unsigned_seed);
    const auto policy = make_policy(name.ours, input.typical);
    const InflationCurves curves = run_inflation(input.pods, data.nodes, plan, *policy.value(),
                                                 input.typical, {.seed = unsigned_seed});
    const std::chrono::duration<double> spent = sys::RealClock().now() - start;
    seconds += spent.count() / kSeeds;
    const auto ours = by_metric(curves);
    for (std::size_t m = 0; m < kMetrics.size(); ++m) {
      for (const int load : {100, 130}) {
        const auto at = static_cast<std::size_t>(load);
        Cell& cell = cells[{list, name.ours, kMetrics[m], load}];
        cell.ours.add((*ours[m])[at]);
        cell.published.add(data.curve(kMetrics[m], list, name, seed)[at]);
      }
    }
  }
  return seconds;
}

bool is_inside(const Cell& cell) {
  return cell.ours.mean >= cell.published.min && cell.ours.mean <= cell.published.max;
}

void print_cell(std::string_view list, std::string_view policy, const Cell& cell) {
  fmt::print("{:<12} {:<15} {:6.2f} [{:6.2f} {:6.2f}]  {:6.2f} [{:6.2f} {:6.2f}]  {:+5.2f}  {:<3}",
             list, policy, cell.ours.mean, cell.ours.min, cell.ours.max, cell.published.mean,
             cell.published.min, cell.published.max, cell.ours.mean - cell.published.mean,
             is_inside(cell) ? "yes" : "no");
}

// The bars: means within 0.75 points, 20 of 24 means within the published range of ten seeds, and
// the same order wherever published means differ by more than 0.5.
bool check(const Cells& cells) {
  int far = 0, inside = 0, turned = 0, pairs = 0;
  for (const std::string_view list : kLists) {
    for (const PolicyName& a : kPolicies) {
      const Cell& lower = cells.at({list, a.ours, "allocation", 130});
      far += std::abs(lower.ours.mean - lower.published.mean) > 0.75 ? 1 : 0;
      inside += is_inside(lower) ? 1 : 0;
      for (const PolicyName& b : kPolicies) {
        const Cell& higher = cells.at({list, b.ours, "allocation", 130});
        if (higher.published.mean - lower.published.mean <= 0.5) continue;
        ++pairs;
        turned += higher.ours.mean > lower.ours.mean ? 0 : 1;
      }
    }
  }
  fmt::print("\nmeans off by more than 0.75: {} of 24 (bar 0)\n", far);
  fmt::print("means inside the published range: {} of 24 (bar 20)\n", inside);
  fmt::print("pairs in the wrong order: {} of {} (bar 0)\n", turned, pairs);
  return far == 0 && inside >= 20 && turned == 0;
}

int run(const std::string& folder) {
  const OpenbData data = read_openb(folder);
  if (data.published.empty()) {
    fmt::print("skipped: no openb data in {}\n", folder);
    return 77;
  }
  Cells cells;
  fmt::print(
      "allocation % at 130 % arrived load: ours, published, difference, our mean inside the "
      "range, seconds of an experiment\n");
  for (const std::string_view list : kLists) {
    for (const PolicyName& name : kPolicies) {
      const double seconds = run_seeds(data, list, name, cells);
      print_cell(list, name.ours, cells.at({list, name.ours, "allocation", 130}));
      fmt::print("  {:.3f} s\n", seconds);
    }
  }
  fmt::print("\nfor information, no bar:\n");
  for (const auto& [key, cell] : cells) {
    const auto& [list, policy, metric, load] = key;
    if (metric == "allocation") continue;
    print_cell(list, policy, cell);
    fmt::print("  {} at {}\n", metric, load);
  }
  return check(cells) ? 0 : 1;
}

}  // namespace
}  // namespace kansoku::simulate::placement

int main(int argc, char** argv) {
  return argc == 2 ? kansoku::simulate::placement::run(argv[1]) : 2;
}
