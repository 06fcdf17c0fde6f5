// SPDX-License-Identifier: Apache-2.0
// Requests to a model as Azure publishes them: a time with seven decimals, tokens in and out.
#include <array>

#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

enum AzureColumn : std::size_t { kAzureTimestamp, kAzureContext, kAzureGenerated };
constexpr std::array<CsvColumn, 3> kAzureColumns{
    {{"TIMESTAMP", true}, {"ContextTokens", true}, {"GeneratedTokens", true}}};
constexpr std::array<std::string_view, 3> kAzureHeader{"TIMESTAMP", "ContextTokens",
                                                       "GeneratedTokens"};

}  // namespace

Result<Workload> import_azure_llm(std::string_view untrusted, std::string_view file_name,
                                  const ImportOptions& options) {
  CsvReader csv(untrusted, file_name);
  TRY_VOID(csv.read_header(kAzureColumns));
  Workload workload = workload_from(Format::kAzureLlm, file_name);
  reserve_jobs(untrusted, workload);
  TRY_VOID(for_each_row(csv, options, workload, [&] {
    Job job;
    job.submit = read_civil(csv, kAzureTimestamp);
    job.tokens_in = read_integer(csv, kAzureContext, 0, kAmountMax);
    job.tokens_out = read_integer(csv, kAzureGenerated, 0, kAmountMax);
    if (!csv.failed()) workload.jobs.push_back(job);
  }));
  set_civil_epoch(workload);
  sort_jobs(workload);
  return workload;
}

Result<std::string> export_azure_llm(const Workload& workload) {
  TRY(const std::int64_t epoch, epoch_for_export(workload));
  CsvWriter csv(kAzureHeader);
  for (const Job& job : workload.jobs) {
    csv.text(civil_text(epoch + job.submit.count()));
    csv.integer(std::max<std::int64_t>(job.tokens_in, 0));
    csv.integer(std::max<std::int64_t>(job.tokens_out, 0));
    csv.end_row();
  }
  return csv.take();
}

}  // namespace kansoku::simulate::import
