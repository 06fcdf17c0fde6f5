// SPDX-License-Identifier: Apache-2.0
// Requests to a model in Vidur's form. Its lists of lengths only have no arrival times: all zero.
#include <array>

#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"

namespace kansoku::simulate::import {
namespace {

enum VidurColumn : std::size_t { kArrived, kPrefill, kDecode };
constexpr std::array<CsvColumn, 3> kVidurColumns{
    {{"arrived_at", false}, {"num_prefill_tokens", true}, {"num_decode_tokens", true}}};
constexpr std::array<std::string_view, 3> kVidurHeader{"arrived_at", "num_prefill_tokens",
                                                       "num_decode_tokens"};

}  // namespace

Result<Workload> import_vidur(std::string_view untrusted, std::string_view file_name,
                              const ImportOptions& options) {
  CsvReader csv(untrusted, file_name);
  TRY_VOID(csv.read_header(kVidurColumns));
  Workload workload = workload_from(Format::kVidur, file_name);
  reserve_jobs(untrusted, workload);
  TRY_VOID(for_each_row(csv, options, workload, [&] {
    Job job;
    if (csv.has(kArrived)) job.submit = read_seconds(csv, kArrived);
    job.tokens_in = read_integer(csv, kPrefill, 0, kAmountMax);
    job.tokens_out = read_integer(csv, kDecode, 0, kAmountMax);
    if (!csv.failed()) workload.jobs.push_back(job);
  }));
  sort_jobs(workload);
  return workload;
}

Result<std::string> export_vidur(const Workload& workload) {
  CsvWriter csv(kVidurHeader);
  for (const Job& job : workload.jobs) {
    csv.decimal(job.submit.count(), 9);
    csv.integer(std::max<std::int64_t>(job.tokens_in, 0));
    csv.integer(std::max<std::int64_t>(job.tokens_out, 0));
    csv.end_row();
  }
  return csv.take();
}

}  // namespace kansoku::simulate::import
