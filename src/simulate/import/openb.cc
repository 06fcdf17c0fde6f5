// SPDX-License-Identifier: Apache-2.0
// openb, the GPU cluster trace of 2023: pods and nodes. Seconds count from an origin that nobody
// tells; it stays time 0.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

enum OpenBColumn : std::size_t {
  kOpenBName,
  kOpenBCpuMilli,
  kOpenBMemoryMib,
  kOpenBNumGpu,
  kOpenBGpuMilli,
  kOpenBGpuSpec,
  kOpenBPodPhase,
  kOpenBCreation,
  kOpenBDeletion,
  kOpenBScheduled,
};
// Some published lists end after the fifth or sixth column.
constexpr std::array<CsvColumn, 10> kOpenBColumns{{{"name", true},
                                                   {"cpu_milli", true},
                                                   {"memory_mib", true},
                                                   {"num_gpu", true},
                                                   {"gpu_milli", true},
                                                   {"gpu_spec", false},
                                                   {"pod_phase", false},
                                                   {"creation_time", false},
                                                   {"deletion_time", false},
                                                   {"scheduled_time", false}}};
constexpr std::array<std::string_view, 11> kOpenBHeader{
    "name", "cpu_milli", "memory_mib",    "num_gpu",       "gpu_milli",     "gpu_spec",
    "qos",  "pod_phase", "creation_time", "deletion_time", "scheduled_time"};

enum NodeColumn : std::size_t { kNodeName, kNodeCpu, kNodeMemory, kNodeGpus, kNodeModel };
constexpr std::array<CsvColumn, 5> kNodeColumns{
    {{"sn", true}, {"cpu_milli", true}, {"memory_mib", true}, {"gpu", true}, {"model", false}}};

void read_gpus(CsvReader& csv, Job& job) {
  job.gpus = static_cast<std::int32_t>(read_integer(csv, kOpenBNumGpu, 0, kGpusMax));
  job.gpu_milli = static_cast<std::int32_t>(
      read_integer(csv, kOpenBGpuMilli, job.gpus > 0 ? 1 : 0, job.gpus > 0 ? 1000 : 0));
  if (job.gpus > 1 && job.gpu_milli < 1000)
    csv.fail(kOpenBGpuMilli, "below 1000 only with one GPU");
}

void read_times(CsvReader& csv, Job& job) {
  constexpr Nanos kUnknown{-1};
  job.submit = read_optional_seconds(csv, kOpenBCreation, Nanos{0});
  job.scheduled = read_optional_seconds(csv, kOpenBScheduled, kUnknown);
  const Nanos deletion = read_optional_seconds(csv, kOpenBDeletion, kUnknown);
  job.censored = csv.text(kOpenBPodPhase) == "Running";
  if (job.scheduled >= Nanos{0} && job.scheduled < job.submit)
    csv.fail(kOpenBScheduled, "before the creation");
  if (deletion < Nanos{0}) return;
  const Nanos start = job.scheduled >= Nanos{0} ? job.scheduled : job.submit;
  if (deletion < start) csv.fail(kOpenBDeletion, "before the pod was scheduled or created");
  job.duration = deletion - start;
}

}  // namespace

Result<Workload> import_openb(std::string_view untrusted, std::string_view file_name,
                              const ImportOptions& options) {
  CsvReader csv(untrusted, file_name);
  TRY_VOID(csv.read_header(kOpenBColumns));
  Workload workload = workload_from(Format::kOpenbPods, file_name);
  reserve_jobs(untrusted, workload);
  InternLookup names(workload.names), types(workload.gpu_types);
  TRY_VOID(for_each_row(csv, options, workload, [&] {
    Job job;
    job.cpu_milli = read_integer(csv, kOpenBCpuMilli, 0, kAmountMax);
    job.memory_mib = read_integer(csv, kOpenBMemoryMib, 0, kAmountMax);
    read_gpus(csv, job);
    read_times(csv, job);
    const std::string_view name = read_name(csv, kOpenBName), type = read_name(csv, kOpenBGpuSpec);
    if (csv.failed()) return;
    job.name = intern(workload.names, name, names);
    job.gpu_type = intern(workload.gpu_types, type, types);
    workload.jobs.push_back(job);
  }));
  sort_jobs(workload);
  return workload;
}

Result<std::string> export_openb(const Workload& workload) {
  CsvWriter csv(kOpenBHeader);
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    const Job& job = workload.jobs[i];
    csv.text(workload.names[job.name]);
    // The format has no "not known" here.
    csv.integer(std::max<std::int64_t>(job.cpu_milli, 0));
    csv.integer(std::max<std::int64_t>(job.memory_mib, 0));
    csv.integer(job.gpus);
    csv.integer(job.gpus > 0 ? job.gpu_milli : 0);
    csv.text(workload.gpu_types[job.gpu_type]);
    csv.empty();
    csv.text(job.censored ? "Running" : "Succeeded");
    csv.decimal(job.submit.count(), 9);
    if (job.duration >= Nanos{0}) {
      const Nanos start = job.scheduled >= Nanos{0} ? job.scheduled : job.submit;
      if (job.duration > Nanos{kTimeNsMax} - start) {
        return Error{Code::kUnsupported,
                     fmt::format("export openb: job {}: it ends later than 133 years", i)};
      }
      csv.decimal((start + job.duration).count(), 9);
    } else {
      csv.empty();
    }
    if (job.scheduled >= Nanos{0}) {
      csv.decimal(job.scheduled.count(), 9);
    } else {
      csv.empty();
    }
    csv.end_row();
  }
  return csv.take();
}

Result<std::vector<NodeSpec>> import_nodes(std::string_view untrusted, std::string_view file_name,
                                           const ImportOptions& options) {
  ImportOptions strict = options;
  strict.skip_bad_rows = false;
  CsvReader csv(untrusted, file_name);
  TRY_VOID(csv.read_header(kNodeColumns));
  Workload unused;
  std::vector<NodeSpec> nodes;
  TRY_VOID(for_each_row(csv, strict, unused, [&] {
    NodeSpec node;
    node.name = read_name(csv, kNodeName);
    node.cpu_milli = read_integer(csv, kNodeCpu, 0, kAmountMax);
    node.memory_mib = read_integer(csv, kNodeMemory, 0, kAmountMax);
    node.gpus = static_cast<std::int32_t>(read_integer(csv, kNodeGpus, 0, kGpusMax));
    node.gpu_model = read_name(csv, kNodeModel);
    if (!csv.failed()) nodes.push_back(std::move(node));
  }));
  return nodes;
}

}  // namespace kansoku::simulate::import
