// SPDX-License-Identifier: Apache-2.0
// Philly in the form that Pollux gave it: one row a job, no wait, no capacity.
#include <array>

#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

enum PhillyColumn : std::size_t {
  kPhillyTimestamp,
  kPhillyDuration,
  kPhillyNumGpus,
  kPhillyCluster
};
constexpr std::array<CsvColumn, 4> kPhillyColumns{
    {{"timestamp", true}, {"duration", true}, {"num_gpus", true}, {"cluster", false}}};
constexpr std::array<std::string_view, 5> kPhillyHeader{"timestamp", "duration", "num_gpus",
                                                        "gpu_time", "cluster"};

}  // namespace

Result<Workload> import_philly(std::string_view untrusted, std::string_view file_name,
                               const ImportOptions& options) {
  CsvReader csv(untrusted, file_name);
  TRY_VOID(csv.read_header(kPhillyColumns));
  Workload workload = workload_from(Format::kPhilly, file_name);
  reserve_jobs(untrusted, workload);
  InternLookup groups(workload.groups);
  TRY_VOID(for_each_row(csv, options, workload, [&] {
    Job job;
    job.submit = read_civil(csv, kPhillyTimestamp);
    job.duration = read_seconds(csv, kPhillyDuration);
    job.gpus = static_cast<std::int32_t>(read_integer(csv, kPhillyNumGpus, 0, kGpusMax));
    job.gpu_milli = job.gpus > 0 ? 1000 : 0;
    const std::string_view group = read_name(csv, kPhillyCluster);
    if (csv.failed()) return;
    job.group = intern(workload.groups, group, groups);
    workload.jobs.push_back(job);
  }));
  set_civil_epoch(workload);
  sort_jobs(workload);
  return workload;
}

Result<std::string> export_philly(const Workload& workload) {
  TRY(const std::int64_t epoch, epoch_for_export(workload));
  CsvWriter csv(kPhillyHeader);
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    const Job& job = workload.jobs[i];
    if (job.duration < Nanos{0}) {
      return Error{Code::kUnsupported,
                   "export philly: job " + std::to_string(i) + ": its duration is unknown"};
    }
    csv.text(civil_text(epoch + job.submit.count()));
    csv.decimal(job.duration.count(), 9);
    csv.integer(job.gpus);
    // Only for readers of that format: rounded to whole seconds, which a product of two fits.
    csv.integer(job.duration.count() / 1'000'000'000 * job.gpus);
    csv.text(workload.groups[job.group]);
    csv.end_row();
  }
  return csv.take();
}

}  // namespace kansoku::simulate::import
