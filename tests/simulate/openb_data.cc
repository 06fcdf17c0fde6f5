// SPDX-License-Identifier: Apache-2.0
#include "openb_data.h"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <utility>

#include "common/parse.h"

namespace kansoku::simulate::placement {
namespace {

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

double decimal(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
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

std::vector<TypicalPod> typical_of(const std::vector<NamedRequest>& pods) {
  std::vector<Request> requests;
  for (const NamedRequest& pod : pods)
    requests.push_back(pod.request);
  return typical_pods(requests);
}

void read_published(const std::string& path, OpenbData& data) {
  const std::string command = "zcat '" + path + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return;
  std::array<char, 1 << 14> line{};
  bool heading = true;
  while (std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    if (std::exchange(heading, false)) continue;
    const Row row = split(line.data());
    constexpr std::size_t kFirstLoad = 6;
    if (row.size() < kFirstLoad + kLoadMax + 1) continue;
    std::vector<double>& curve = data.published[{row[0], row[1], row[2], number<int>(row[4])}];
    for (std::size_t load = 0; load <= kLoadMax; ++load)
      curve.push_back(decimal(row[kFirstLoad + load]));
  }
}

}  // namespace

const std::vector<double>& OpenbData::curve(std::string_view metric, std::string_view list,
                                            const PolicyName& policy, int seed) const {
  return published.at({std::string(metric), "openb_pod_list_" + std::string(list),
                       std::string(policy.published), seed});
}

OpenbData read_openb(const std::string& folder) {
  const std::string base = folder + "/alibaba_openb_v2023/openb_";
  OpenbData data;
  data.nodes = read_nodes(base + "node_list_gpu_node.csv");
  bool complete = !data.nodes.empty();
  for (const std::string_view list : kLists) {
    OpenbData::List& read = data.lists[list];
    read.pods = read_pods(base + "pod_list_" + std::string(list) + ".csv");
    read.typical = typical_of(read.pods);
    complete = complete && !read.pods.empty();
  }
  if (complete) read_published(base + "golden_shared_lists.csv.gz", data);
  return data;
}

std::array<const std::vector<double>*, 3> by_metric(const InflationCurves& curves) {
  return {&curves.allocation, &curves.frag, &curves.frag_ratio};
}

}  // namespace kansoku::simulate::placement
