// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/json.h"
#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"
#include "simulate/import/internal/wfformat.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

std::string json_text(std::string_view text) {
  return Json(text).dump();
}

/// One export. The bytes are laid out by hand: times keep all their digits that way.
class WfExporter {
 public:
  explicit WfExporter(const Workload& workload);
  [[nodiscard]] Result<std::string> text();

 private:
  void put(std::string_view text) { out_ += text; }
  void put_list(std::string_view key, std::span<const std::uint32_t> jobs);
  void put_specification();
  void put_execution();
  void put_number(std::string_view key, std::int64_t value, int digits);

  const Workload& workload_;
  std::vector<std::string> ids_;
  std::vector<std::vector<std::uint32_t>> parents_, children_;
  Graph graph_{.name = std::string(wfformat::kNoName)};
  std::string out_;
};

WfExporter::WfExporter(const Workload& workload)
    : workload_(workload), parents_(workload.jobs.size()), children_(workload.jobs.size()) {
  std::vector<bool> used(workload.names.size());
  bool are_own = true;
  for (const Job& job : workload.jobs) {
    are_own &= job.name != 0 && !used[job.name];
    used[job.name] = true;
  }
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    ids_.push_back(
        json_text(are_own ? workload.names[workload.jobs[i].name] : fmt::format("task_{}", i + 1)));
  }
  for (const Edge& edge : workload.edges) {
    parents_[edge.child].push_back(edge.parent);
    children_[edge.parent].push_back(edge.child);
  }
  if (!workload.graphs.empty()) graph_ = workload.graphs.front();
}

void WfExporter::put_list(std::string_view key, std::span<const std::uint32_t> jobs) {
  out_ += fmt::format(", \"{}\": [", key);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i > 0) put(", ");
    put(ids_[jobs[i]]);
  }
  put("]");
}

void WfExporter::put_number(std::string_view key, std::int64_t value, int digits) {
  if (value < 0) return;
  out_ += fmt::format(", \"{}\": ", key);
  append_decimal(out_, value, digits);
}

void WfExporter::put_specification() {
  put("    \"specification\": {\n      \"tasks\": [");
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    out_ +=
        fmt::format("{}\n        {{\"name\": {}, \"id\": {}", i > 0 ? "," : "", ids_[i], ids_[i]);
    put_list("parents", parents_[i]);
    put_list("children", children_[i]);
    put("}");
  }
  put("\n      ],\n      \"files\": []\n    },\n");
}

void WfExporter::put_execution() {
  put("    \"execution\": {\n");
  if (graph_.makespan_s >= 0)
    out_ += fmt::format("      \"makespanInSeconds\": {},\n", graph_.makespan_s);
  put("      \"tasks\": [");
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const Job& job = workload_.jobs[i];
    out_ += fmt::format("{}\n        {{\"id\": {}", i > 0 ? "," : "", ids_[i]);
    put_number("runtimeInSeconds", job.duration.count(), 9);
    put_number("avgCPU", job.cpu_milli, 1);
    put_number("memoryInBytes", job.memory_mib < 0 ? -1 : job.memory_mib * wfformat::kBytesPerMib,
               0);
    put_number("readBytes", job.read_bytes, 0);
    put_number("writtenBytes", job.written_bytes, 0);
    put("}");
  }
  put("\n      ],\n      \"machines\": [");
  if (graph_.machine_cores >= 0) {
    out_ += fmt::format("{{\"nodeName\": \"all\", \"cpu\": {{\"coreCount\": {}}}}}",
                        graph_.machine_cores);
  }
  put("]\n    }\n");
}

Result<std::string> WfExporter::text() {
  const auto refuse = [](std::string_view what) {
    return Error{Code::kUnsupported, fmt::format("export wfformat: {}", what)};
  };
  if (workload_.graphs.size() > 1)
    return refuse(fmt::format("{} graphs, the format holds one", workload_.graphs.size()));
  for (const Job& job : workload_.jobs) {
    if (!workload_.graphs.empty() && job.graph == 0) return refuse("jobs outside of the graph");
    if (job.memory_mib > kAmountMax / wfformat::kBytesPerMib)
      return refuse("memory beyond 10^18 bytes");
  }
  if (graph_.makespan_s > wfformat::kMakespanMaxS || graph_.machine_cores > wfformat::kCoresMax)
    return refuse("makespan or cores beyond the limits of the reader");
  if (graph_.name.size() > kNameBytesMax || graph_.name.empty() ||
      !simdjson::validate_utf8(graph_.name))
    return refuse("the graph's name is empty, too long or not UTF-8");
  out_ = fmt::format("{{\n  \"name\": {},\n  \"schemaVersion\": \"1.5\",\n  \"workflow\": {{\n",
                     json_text(graph_.name));
  put_specification();
  put_execution();
  put("  }\n}\n");
  return std::move(out_);
}

}  // namespace

Result<std::string> export_wfformat(const Workload& workload) {
  return WfExporter(workload).text();
}

}  // namespace kansoku::simulate::import
