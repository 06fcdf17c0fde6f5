// SPDX-License-Identifier: Apache-2.0
#include "simulate/import/import.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "simulate/import/internal/csv.h"
#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"

namespace kansoku::simulate::import {
namespace {

constexpr std::size_t kMarksMax = 5;
constexpr std::size_t kHeaderBytesMax = 65536;  // of a text, looked at to tell its format

struct FormatRow {
  Format format;
  std::string_view name;
  std::array<std::string_view, kMarksMax> marks;  // columns that tell it from the others; "" = none
  Result<Workload> (*import_text)(std::string_view, std::string_view, const ImportOptions&);
  Result<std::string> (*export_text)(const Workload&);
};

constexpr std::array<FormatRow, 7> kFormats{{
    {Format::kPhilly,
     "philly",
     {"timestamp", "duration", "num_gpus"},
     import_philly,
     export_philly},
    {Format::kOpenbPods,
     "openb",
     {"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"},
     import_openb,
     export_openb},
    {Format::kAlibabaBatch,
     "alibaba-batch",
     {"submit_time", "duration", "job_id", "task_id"},
     import_alibaba_batch,
     export_alibaba_batch},
    {Format::kAzureLlm,
     "azure-llm",
     {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
     import_azure_llm,
     export_azure_llm},
    {Format::kVidur,
     "vidur",
     {"num_prefill_tokens", "num_decode_tokens"},
     import_vidur,
     export_vidur},
    {Format::kWfFormat, "wfformat", {}, import_wfformat, export_wfformat},
    {Format::kPlain, "plain", {"submit_s"}, import_plain, export_plain},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (static_cast<std::size_t>(kFormats[i].format) != i) return false;
  }
  return true;
}
static_assert(in_order(), "row i is format i");

const FormatRow& row_of(Format format) {
  const auto index = static_cast<std::size_t>(format);
  CHECK(index < kFormats.size());
  return kFormats[index];
}

bool looks_like_wfformat(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != text.npos && text[begin] == '{' && text.find("\"workflow\"") != text.npos;
}

}  // namespace

std::string_view format_name(Format format) {
  return row_of(format).name;
}

std::optional<Format> format_from_name(std::string_view name) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(),
                                  [&](const FormatRow& row) { return row.name == name; });
  if (found == kFormats.end()) return std::nullopt;
  return found->format;
}

std::optional<Format> detect_format(std::string_view untrusted) {
  if (untrusted.substr(0, 3) == "\xEF\xBB\xBF") untrusted.remove_prefix(3);
  if (looks_like_wfformat(untrusted)) return Format::kWfFormat;
  const std::string_view begin = untrusted.substr(0, kHeaderBytesMax);
  for (const FormatRow& row : kFormats) {
    std::array<CsvColumn, kMarksMax> columns;
    std::size_t count = 0;
    while (count < kMarksMax && !row.marks[count].empty()) {
      columns[count] = {row.marks[count], true};
      ++count;
    }
    CsvReader csv(begin, "", {.first_of_duplicates = true});
    static_cast<void>(csv.take_comment());
    if (count > 0 && csv.read_header(std::span(columns).first(count))) return row.format;
  }
  return std::nullopt;
}

Result<Workload> import_workload(Format format, std::string_view untrusted,
                                 std::string_view file_name, const ImportOptions& options) {
  return row_of(format).import_text(untrusted, file_name, options);
}

Result<std::string> export_workload(Format format, const Workload& workload) {
  TRY_VOID(check_exportable(workload));
  return row_of(format).export_text(workload);
}

}  // namespace kansoku::simulate::import
