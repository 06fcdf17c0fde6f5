// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/internal/job_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "simulate/workload/internal/json_reader.h"
#include "simulate/workload/internal/week.h"

namespace kansoku::simulate::internal {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

struct Column {
  std::string_view name;
  std::int64_t low, high;
  std::int64_t (*get)(const Job&);
  void (*put)(Job&, std::int64_t);
};

constexpr std::array<Column, 15> kColumns{{
    {"submit_ns", 0, kStreamMaxNs, [](const Job& j) { return std::int64_t{j.submit.count()}; },
     [](Job& j, std::int64_t v) { j.submit = Nanos{v}; }},
    {"duration_ns", -1, kStreamMaxNs, [](const Job& j) { return std::int64_t{j.duration.count()}; },
     [](Job& j, std::int64_t v) { j.duration = Nanos{v}; }},
    {"scheduled_ns", -1, kStreamMaxNs,
     [](const Job& j) { return std::int64_t{j.scheduled.count()}; },
     [](Job& j, std::int64_t v) { j.scheduled = Nanos{v}; }},
    {"group", 0, kInt32Max, [](const Job& j) { return std::int64_t{j.group}; },
     [](Job& j, std::int64_t v) { j.group = static_cast<std::uint32_t>(v); }},
    {"gpu_type", 0, kInt32Max, [](const Job& j) { return std::int64_t{j.gpu_type}; },
     [](Job& j, std::int64_t v) { j.gpu_type = static_cast<std::uint32_t>(v); }},
    {"gpus", 0, kInt32Max, [](const Job& j) { return std::int64_t{j.gpus}; },
     [](Job& j, std::int64_t v) { j.gpus = static_cast<std::int32_t>(v); }},
    {"gpu_milli", 0, kInt32Max, [](const Job& j) { return std::int64_t{j.gpu_milli}; },
     [](Job& j, std::int64_t v) { j.gpu_milli = static_cast<std::int32_t>(v); }},
    {"cpu_milli", -1, kInt64Max, [](const Job& j) { return j.cpu_milli; },
     [](Job& j, std::int64_t v) { j.cpu_milli = v; }},
    {"memory_mib", -1, kInt64Max, [](const Job& j) { return j.memory_mib; },
     [](Job& j, std::int64_t v) { j.memory_mib = v; }},
    {"read_bytes", -1, kInt64Max, [](const Job& j) { return j.read_bytes; },
     [](Job& j, std::int64_t v) { j.read_bytes = v; }},
    {"written_bytes", -1, kInt64Max, [](const Job& j) { return j.written_bytes; },
     [](Job& j, std::int64_t v) { j.written_bytes = v; }},
    {"tokens_in", -1, kInt64Max, [](const Job& j) { return j.tokens_in; },
     [](Job& j, std::int64_t v) { j.tokens_in = v; }},
    {"tokens_out", -1, kInt64Max, [](const Job& j) { return j.tokens_out; },
     [](Job& j, std::int64_t v) { j.tokens_out = v; }},
    {"instances", 1, kInt32Max, [](const Job& j) { return std::int64_t{j.instances}; },
     [](Job& j, std::int64_t v) { j.instances = static_cast<std::int32_t>(v); }},
    {"censored", 0, 1, [](const Job& j) { return std::int64_t{j.censored ? 1 : 0}; },
     [](Job& j, std::int64_t v) { j.censored = v != 0; }},
}};

Result<void> check_indices(const std::vector<Job>& jobs, const ObjectReader& reader,
                           std::size_t group_count, std::size_t gpu_type_count) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].group >= group_count)
      return corrupt(fmt::format("{}[{}]", reader.path_of("group"), i), "beyond the groups");
    if (jobs[i].gpu_type >= gpu_type_count)
      return corrupt(fmt::format("{}[{}]", reader.path_of("gpu_type"), i), "beyond the gpu_types");
  }
  return {};
}

}  // namespace

Json jobs_to_json(const std::vector<Job>& jobs) {
  Json out = Json::object();
  const Job standard;
  for (const Column& column : kColumns) {
    const bool needed =
        column.name == kColumns[0].name || std::any_of(jobs.begin(), jobs.end(), [&](const Job& j) {
          return column.get(j) != column.get(standard);
        });
    if (!needed) continue;
    Json values = Json::array();
    for (const Job& job : jobs)
      values.push(column.get(job));
    out.set(column.name, std::move(values));
  }
  return out;
}

Result<std::vector<Job>> jobs_from_json(const Json& untrusted, std::string_view path,
                                        std::size_t group_count, std::size_t gpu_type_count) {
  TRY(const auto reader,
      ObjectReader::make(untrusted, path,
                         {"submit_ns", "duration_ns", "scheduled_ns", "group", "gpu_type", "gpus",
                          "gpu_milli", "cpu_milli", "memory_mib", "read_bytes", "written_bytes",
                          "tokens_in", "tokens_out", "instances", "censored"}));
  std::vector<Job> jobs;
  for (const Column& column : kColumns) {
    const bool first = column.name == kColumns[0].name;
    if (!first && !reader.has(column.name)) continue;
    TRY(const auto values, reader.integers(column.name, column.low, column.high));
    if (first) jobs.resize(values.size());
    if (values.size() != jobs.size())
      return corrupt(reader.path_of(column.name),
                     fmt::format("{} elements, but submit_ns has {}", values.size(), jobs.size()));
    for (std::size_t i = 0; i < jobs.size(); ++i)
      column.put(jobs[i], values[i]);
  }
  TRY_VOID(check_indices(jobs, reader, group_count, gpu_type_count));
  return jobs;
}

}  // namespace kansoku::simulate::internal
