// SPDX-License-Identifier: Apache-2.0
// The six placement policies of openb against their published curves: four lists of pods, ten seeds
// each. `placement_golden <folder with alibaba_openb_v2023/> [--published-order]`; with the second
// word pods arrive, and nodes are numbered, in the order of the published run of the same seed, so
// that the curves of one seed can be compared. Exit status 1 if a bar is missed, 77 without data.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/parse.h"
#include "published_random.h"
#include "simulate/placement/inflation.h"

namespace kansoku::simulate::placement {
namespace {

constexpr std::array<std::string_view, 4> kLists{"default", "gpushare100", "gpushare40", "cpu100"};
struct PolicyName {
  std::string_view ours, published;
};
constexpr std::array<PolicyName, 6> kPolicies{{{"random", "01-Random"},
                                               {"dot_prod", "02-DotProd"},
                                               {"gpu_clustering", "03-GpuClustering"},
                                               {"gpu_packing", "04-GpuPacking"},
                                               {"best_fit", "05-BestFit"},
                                               {"fgd", "06-FGD"}}};
constexpr int kFirstSeed = 42, kSeeds = 10, kLoadMax = 130;
constexpr double kLoad = 1.3;

using Row = std::vector<std::string>;

Row split(const std::string& line) {
  Row cells(1);
  for (const char c : line) {
    if (c == ',')
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

std::vector<Row> read_rows(const std::string& path) {
  std::vector<Row> rows;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // names of the columns
  while (std::getline(file, line))
    rows.push_back(split(line));
  return rows;
}

template <class Int>
Int number(const std::string& text) {
  return parse_int<Int>(text).value_or(Int{0});
}

// name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec (empty in these four lists)
std::vector<NamedRequest> read_pods(const std::string& path) {
  std::vector<NamedRequest> pods;
  for (const Row& row : read_rows(path)) {
    NamedRequest& pod = pods.emplace_back();
    pod.name = row.at(0);
    pod.request.cpu_milli = number<std::int64_t>(row.at(1));
    pod.request.memory_mib = number<std::int64_t>(row.at(2));
    pod.request.gpus = number<std::int32_t>(row.at(3));
    pod.request.gpu_milli = number<std::int32_t>(row.at(4));
  }
  return pods;
}

std::vector<Node> read_nodes(const std::string& path) {
  std::vector<Node> nodes;
  for (const Row& row : read_rows(path)) {
    Node& node = nodes.emplace_back();
    node.name = row.at(0);
    node.cpu_milli = number<std::int64_t>(row.at(1));
    node.memory_mib = number<std::int64_t>(row.at(2));
    node.gpus = number<std::int32_t>(row.at(3));
  }
  return nodes;
}

// metric, list, policy, seed -> the curve
using CurveKey = std::tuple<std::string, std::string, std::string, int>;
using Published = std::map<CurveKey, std::vector<double>>;

Published read_published(const std::string& path) {
  Published published;
  const std::string command = "zcat '" + path + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return published;
  std::array<char, 1 << 14> line{};
  bool heading = true;
  while (std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    if (std::exchange(heading, false)) continue;
    const Row row = split(line.data());
    constexpr std::size_t kFirstLoad = 6;
    if (row.size() < kFirstLoad + kLoadMax + 1) continue;
    std::vector<double>& curve = published[{row[0], row[1], row[2], number<int>(row[4])}];
    for (std::size_t load = 0; load <= kLoadMax; ++load)
      curve.push_back(std::strtod(row[kFirstLoad + load].c_str(), nullptr));
  }
  return published;
}

// What the published simulator draws, in its order: one number for a log line, the shuffle, the
// copies, the numbers of the nodes.
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
  plan.node_number = random.permutation(static_cast<std::uint32_t>(nodes.size()));
  return plan;
}

struct Range {
  double mean{0}, min{INFINITY}, max{-INFINITY};
  void add(double value) {
    mean += value / kSeeds;
    min = std::min(min, value);
    max = std::max(max, value);
  }
};

// One list and one policy: our figure and the published one, for each metric and load asked about.
struct Cell {
  Range ours, published;
  double largest_gap{0};  // of one seed at any load
};
constexpr std::array<std::string_view, 3> kMetrics{"allocation", "frag", "frag_ratio"};
using Cells = std::map<std::tuple<std::string_view, std::string_view, std::string_view, int>, Cell>;

struct Inputs {
  std::map<std::string_view, std::vector<NamedRequest>> pods;
  std::vector<Node> nodes;
  Published published;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double run_list(const Inputs& in, std::string_view list, const PolicyName& name,
                bool published_order, Cells& cells) {
  const std::vector<NamedRequest>& pods = in.pods.at(list);
  std::vector<Request> requests;
  for (const NamedRequest& pod : pods)
    requests.push_back(pod.request);
  const std::vector<TypicalPod> typical = typical_pods(requests);
  double seconds = 0;
  for (int seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    const auto unsigned_seed = static_cast<std::uint64_t>(seed);
    const InflationPlan plan = published_order
                                   ? published_plan(pods, in.nodes, seed)
                                   : plan_inflation(pods, in.nodes, kLoad, unsigned_seed);
    const auto start = std::chrono::steady_clock::now();
    const auto policy = make_policy(name.ours, typical);
    const InflationCurves curves =
        run_inflation(pods, in.nodes, plan, *policy.value(), typical, {.seed = unsigned_seed});
    seconds += seconds_since(start) / kSeeds;
    const std::array<const std::vector<double>*, 3> ours{&curves.allocation, &curves.frag,
                                                         &curves.frag_ratio};
    for (std::size_t m = 0; m < kMetrics.size(); ++m) {
      const std::vector<double>& theirs =
          in.published.at({std::string(kMetrics[m]), "openb_pod_list_" + std::string(list),
                           std::string(name.published), seed});
      for (const std::size_t load : {100, 130}) {
        Cell& cell = cells[{list, name.ours, kMetrics[m], static_cast<int>(load)}];
        cell.ours.add((*ours[m])[load]);
        cell.published.add(theirs[load]);
        for (std::size_t i = 0; i <= load; ++i)
          cell.largest_gap = std::max(cell.largest_gap, std::abs((*ours[m])[i] - theirs[i]));
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
      const Cell& first = cells.at({list, a.ours, "allocation", 130});
      far += std::abs(first.ours.mean - first.published.mean) > 0.75 ? 1 : 0;
      inside += is_inside(first) ? 1 : 0;
      for (const PolicyName& b : kPolicies) {
        const Cell& second = cells.at({list, b.ours, "allocation", 130});
        if (second.published.mean - first.published.mean <= 0.5) continue;
        ++pairs;
        turned += second.ours.mean > first.ours.mean ? 0 : 1;
      }
    }
  }
  fmt::print(
      "\nmeans off by more than 0.75: {} of 24 (bar 0); inside the published range: {} of 24 "
      "(bar 20); pairs in the wrong order: {} of {} (bar 0)\n",
      far, inside, turned, pairs);
  return far == 0 && inside >= 20 && turned == 0;
}

int run(const std::string& folder, bool published_order) {
  const std::string base = folder + "/alibaba_openb_v2023/openb_";
  Inputs in;
  in.nodes = read_nodes(base + "node_list_gpu_node.csv");
  bool complete = !in.nodes.empty();
  for (const std::string_view list : kLists) {
    in.pods[list] = read_pods(base + "pod_list_" + std::string(list) + ".csv");
    complete = complete && !in.pods[list].empty();
  }
  if (complete) in.published = read_published(base + "golden_shared_lists.csv.gz");
  if (in.published.empty()) {
    fmt::print("skipped: no openb data in {}\n", folder);
    return 77;
  }
  Cells cells;
  fmt::print(
      "allocation % at 130 % arrived load: ours, published, difference, mean inside the range,"
      " seconds, largest gap of a seed\n");
  for (const std::string_view list : kLists) {
    for (const PolicyName& name : kPolicies) {
      const double seconds = run_list(in, list, name, published_order, cells);
      const Cell& cell = cells.at({list, name.ours, "allocation", 130});
      print_cell(list, name.ours, cell);
      fmt::print("  {:.3f} s  {:.3f}\n", seconds, cell.largest_gap);
    }
  }
  for (const auto& [key, cell] : cells) {
    const auto& [list, policy, metric, load] = key;
    if (metric == "allocation") continue;
    print_cell(list, policy, cell);
    fmt::print("  {} at {}  {:.3f}\n", metric, load, cell.largest_gap);
  }
  return check(cells) ? 0 : 1;
}

}  // namespace
}  // namespace kansoku::simulate::placement

int main(int argc, char** argv) {
  const std::string_view option = argc > 2 ? argv[2] : "";
  if (argc < 2) return 2;
  return kansoku::simulate::placement::run(argv[1], option == "--published-order");
}
