// SPDX-License-Identifier: Apache-2.0
// Batch tasks of Alibaba's cluster trace v2018, in the form that CloudSimPy gave it. A task's name
// may code its number and its parents: "J5_3_4" is task 5, which waits for 3 and 4. Memory is a
// fraction of a node whose size nobody tells: it stays unknown.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/parse.h"
#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

enum AlibabaColumn : std::size_t {
  kAlibabaSubmit,
  kAlibabaDuration,
  kAlibabaCpu,
  kAlibabaJobId,
  kAlibabaTaskId,
  kAlibabaInstances
};
constexpr std::array<CsvColumn, 6> kAlibabaColumns{{{"submit_time", true},
                                                    {"duration", true},
                                                    {"cpu", false},
                                                    {"job_id", true},
                                                    {"task_id", true},
                                                    {"instances_num", false}}};
constexpr std::array<std::string_view, 8> kAlibabaHeader{
    "submit_time", "duration", "cpu", "memory", "job_id", "task_id", "instances_num", "disk"};

struct TaskCode {
  std::uint32_t number{0};
  std::vector<std::uint32_t> parents;  // sorted, each once
};

/// Code in a task's name: letters and a number, then parents until a part that is no number
/// ("_Stg1"). Nothing for a name of another form ("task_Nzg3").
std::optional<TaskCode> parse_code(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  while (!name.empty() && is_letter(name.front()))
    name.remove_prefix(1);
  TaskCode code;
  for (bool is_first = true; !name.empty() || is_first; is_first = false) {
    const std::size_t end = std::min(name.find('_'), name.size());
    const auto number = parse_int<std::uint32_t>(name.substr(0, end));
    if (!number && is_first) return std::nullopt;
    if (!number) break;
    if (is_first) {
      code.number = *number;
    } else {
      code.parents.push_back(*number);
    }
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  std::sort(code.parents.begin(), code.parents.end());
  code.parents.erase(std::unique(code.parents.begin(), code.parents.end()), code.parents.end());
  return code;
}

/// Gives every task a name whose code says its edges: its own where all names of its graph do,
/// else one made of numbers within the graph.
class Namer {
 public:
  explicit Namer(const Workload& workload);
  [[nodiscard]] std::string name_of(std::uint32_t job) const;

 private:
  void check_own_names();

  const Workload& workload_;
  std::vector<std::uint32_t> number_;                // of a job within its graph, from 1
  std::vector<std::vector<std::uint32_t>> parents_;  // of a job: jobs
  std::vector<bool> is_coded_;                       // by graph
};

Namer::Namer(const Workload& workload)
    : workload_(workload),
      number_(workload.jobs.size()),
      parents_(workload.jobs.size()),
      is_coded_(workload.graphs.size() + 1, true) {
  std::vector<std::uint32_t> last(workload.graphs.size() + 1);
  for (std::size_t i = 0; i < number_.size(); ++i)
    number_[i] = ++last[workload.jobs[i].graph];
  for (const Edge& edge : workload.edges)
    parents_[edge.child].push_back(edge.parent);
  check_own_names();
}

void Namer::check_own_names() {
  const std::vector<Job>& jobs = workload_.jobs;
  std::vector<std::optional<TaskCode>> codes;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> numbers;  // graph, number
  for (const Job& job : jobs) {
    codes.push_back(parse_code(workload_.names[job.name]));
    if (codes.back()) numbers.emplace_back(job.graph, codes.back()->number);
  }
  std::sort(numbers.begin(), numbers.end());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    std::vector<std::uint32_t> wanted;
    bool all_coded = jobs[i].name != 0;
    for (const std::uint32_t parent : parents_[i]) {
      all_coded &= codes[parent].has_value();
      if (!codes[parent]) continue;
      const std::pair key(jobs[parent].graph, codes[parent]->number);
      const auto [first, end] = std::equal_range(numbers.begin(), numbers.end(), key);
      all_coded &= end - first == 1;
      wanted.push_back(key.second);
    }
    std::sort(wanted.begin(), wanted.end());
    const bool same = codes[i] ? codes[i]->parents == wanted : wanted.empty();
    if (!all_coded || !same) is_coded_[jobs[i].graph] = false;
  }
}

std::string Namer::name_of(std::uint32_t job) const {
  const Job& task = workload_.jobs[job];
  if (is_coded_[task.graph] || task.graph == 0) {
    const std::string& own = workload_.names[task.name];
    if (task.graph != 0 || !own.empty()) return own;
  }
  std::string name = std::to_string(number_[job]);
  for (const std::uint32_t parent : parents_[job])
    name += fmt::format("_{}", number_[parent]);
  return name;
}

}  // namespace

Result<Workload> import_alibaba_batch(std::string_view untrusted, std::string_view file_name,
                                      const ImportOptions& options) {
  CsvReader csv(untrusted, file_name, {.first_of_duplicates = true});
  TRY_VOID(csv.read_header(kAlibabaColumns));
  Workload workload = workload_from(Format::kAlibabaBatch, file_name);
  reserve_jobs(untrusted, workload);
  std::vector<std::string> graph_names{""};
  InternLookup names(workload.names), graphs(graph_names);
  TaskLinks links(TaskLinks::Keys::kNumbers);
  TRY_VOID(for_each_row(csv, options, workload, [&] {
    Job job;
    job.submit = read_seconds(csv, kAlibabaSubmit);
    job.duration = read_seconds(csv, kAlibabaDuration);
    job.cpu_milli = read_optional_scaled(csv, kAlibabaCpu, 3, kAmountMax, -1);
    job.instances = static_cast<std::int32_t>(
        read_optional_integer(csv, kAlibabaInstances, 1, kInstancesMax, 1));
    const std::string_view graph = read_name(csv, kAlibabaJobId),
                           name = read_name(csv, kAlibabaTaskId);
    if (graph.empty()) csv.fail(kAlibabaJobId, "empty name of a job");
    if (name.empty()) csv.fail(kAlibabaTaskId, "empty name of a task");
    if (csv.failed()) return;
    job.name = intern(workload.names, name, names);
    job.graph = intern(graph_names, graph, graphs);
    if (job.graph > workload.graphs.size()) workload.graphs.push_back({.name = std::string(graph)});
    const auto index = static_cast<std::uint32_t>(workload.jobs.size());
    workload.jobs.push_back(job);
    const auto code = parse_code(name);
    if (!code) return;
    links.add_task(job.graph, code->number, index);
    for (const std::uint32_t parent : code->parents)
      links.add_parent(job.graph, parent, index, csv.place_of(kAlibabaTaskId));
  }));
  TRY_VOID(links.finish(csv, options, workload));
  return workload;
}

Result<std::string> export_alibaba_batch(const Workload& workload) {
  for (const Edge& edge : workload.edges) {
    const Job& child = workload.jobs[edge.child];
    if (child.graph == 0 || child.graph != workload.jobs[edge.parent].graph) {
      return Error{Code::kUnsupported, fmt::format("export alibaba-batch: job {}: its parent is in "
                                                   "another graph",
                                                   edge.child)};
    }
  }
  const Namer namer(workload);
  CsvWriter csv(kAlibabaHeader);
  for (std::uint32_t i = 0; i < workload.jobs.size(); ++i) {
    const Job& job = workload.jobs[i];
    if (job.duration < Nanos{0}) {
      return Error{Code::kUnsupported,
                   fmt::format("export alibaba-batch: job {}: its duration is unknown", i)};
    }
    csv.decimal(job.submit.count(), 9);
    csv.decimal(job.duration.count(), 9);
    if (job.cpu_milli >= 0) {
      csv.decimal(job.cpu_milli, 3);
    } else {
      csv.empty();
    }
    csv.empty();
    csv.text(job.graph == 0 ? fmt::format("job_{}", i) : workload.graphs[job.graph - 1].name);
    csv.text(namer.name_of(i));
    csv.integer(job.instances);
    csv.integer(0);
    csv.end_row();
  }
  return csv.take();
}

}  // namespace kansoku::simulate::import
