// SPDX-License-Identifier: Apache-2.0
#include "simulate/import/internal/rows.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <optional>

#include "common/check.h"
#include "common/parse.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

constexpr std::size_t kRowBytesLeast = 8;  // of what is worth reserving for
constexpr std::int64_t kDefaultEpochNs =
    978'307'200 * std::int64_t{1'000'000'000};  // Monday 2001-01-01

void fail_number(CsvReader& csv, std::size_t column) {
  const std::string_view text = csv.text(column);
  csv.fail(column, text.empty() ? "empty field, a number is needed"
                                : fmt::format("no number: {}", in_quotes(text)));
}

std::string scaled_text(std::int64_t value, int digits) {
  std::string text;
  append_decimal(text, value, digits);
  return text;
}

std::int64_t read_scaled(CsvReader& csv, std::size_t column, int digits, std::int64_t least,
                         std::int64_t greatest) {
  const auto value = parse_decimal(csv.text(column), digits);
  if (!value) {
    fail_number(csv, column);
    return least;
  }
  if (*value < least || *value > greatest) {
    csv.fail(column, fmt::format("{} is outside {}..{}", in_quotes(csv.text(column)),
                                 scaled_text(least, digits), scaled_text(greatest, digits)));
    return least;
  }
  return *value;
}

Error unsupported(const Workload& workload, std::size_t job, std::string_view what) {
  return Error{Code::kUnsupported,
               fmt::format("export {}: job {}: {}",
                           workload.source.empty() ? "workload" : workload.source, job, what)};
}

}  // namespace

std::int64_t read_integer(CsvReader& csv, std::size_t column, std::int64_t least,
                          std::int64_t greatest) {
  const std::string_view text = csv.text(column);
  auto value = parse_int<std::int64_t>(text);
  if (!value) {
    // Tables written by way of floating point have "4.0".
    const auto tenths = parse_decimal(text, 1);
    const bool is_whole = tenths && *tenths % 10 == 0 && text.find('.') != text.npos &&
                          text.find_first_not_of('0', text.find('.') + 1) == text.npos;
    if (is_whole) value = *tenths / 10;
  }
  if (!value) {
    fail_number(csv, column);
    return least;
  }
  if (*value < least || *value > greatest) {
    csv.fail(column, fmt::format("{} is outside {}..{}", in_quotes(text), least, greatest));
    return least;
  }
  return *value;
}

std::int64_t read_optional_integer(CsvReader& csv, std::size_t column, std::int64_t least,
                                   std::int64_t greatest, std::int64_t fallback) {
  return csv.text(column).empty() ? fallback : read_integer(csv, column, least, greatest);
}

std::int64_t read_optional_scaled(CsvReader& csv, std::size_t column, int digits,
                                  std::int64_t greatest, std::int64_t fallback) {
  return csv.text(column).empty() ? fallback : read_scaled(csv, column, digits, 0, greatest);
}

Nanos read_seconds(CsvReader& csv, std::size_t column) {
  return Nanos{read_scaled(csv, column, 9, 0, kTimeNsMax)};
}

Nanos read_optional_seconds(CsvReader& csv, std::size_t column, Nanos fallback) {
  return csv.text(column).empty() ? fallback : read_seconds(csv, column);
}

Nanos read_civil(CsvReader& csv, std::size_t column) {
  if (const auto ns = parse_civil_ns(csv.text(column))) return Nanos{*ns};
  csv.fail(column, fmt::format("not a time like 2017-10-09 07:01:55 in the years 1970 to 2099: {}",
                               in_quotes(csv.text(column))));
  return Nanos{0};
}

std::string_view read_name(CsvReader& csv, std::size_t column) {
  const std::string_view text = csv.text(column);
  if (text.size() > kNameBytesMax) {
    csv.fail(column, fmt::format("name longer than the limit of {} bytes", kNameBytesMax));
    return {};
  }
  if (!csv.is_utf8(text)) {
    csv.fail(column, fmt::format("not UTF-8: {}", in_quotes(text)));
    return {};
  }
  return text;
}

Result<void> leave_out(Error error, const ImportOptions& options, Workload& into) {
  if (!options.skip_bad_rows) {
    if (error.hint.empty() && error.code == Code::kCorrupt)
      error.hint = "correct the row, or skip malformed rows with --skip-bad-rows";
    return error;
  }
  ++into.bad_rows;
  if (into.bad_row_notes.size() < options.notes_max)
    into.bad_row_notes.push_back(std::move(error.what));
  return {};
}

void reserve_jobs(std::string_view untrusted, Workload& into) {
  const auto lines =
      static_cast<std::size_t>(std::count(untrusted.begin(), untrusted.end(), '\n')) + 1;
  into.jobs.reserve(std::min(lines, untrusted.size() / kRowBytesLeast));
}

Workload workload_from(Format format, std::string_view file_name) {
  Workload workload;
  workload.source = fmt::format("{} {}", format_name(format), file_name);
  return workload;
}

void set_civil_epoch(Workload& workload) {
  if (workload.jobs.empty()) return;
  const auto earlier = [](const Job& a, const Job& b) { return a.submit < b.submit; };
  const Nanos epoch = std::min_element(workload.jobs.begin(), workload.jobs.end(), earlier)->submit;
  for (Job& job : workload.jobs)
    job.submit -= epoch;
  workload.epoch = civil_text(epoch.count());
  workload.epoch_in_week_s = second_of_week(epoch.count());
}

Result<void> TaskLinks::finish(const CsvReader& csv, const ImportOptions& options, Workload& into) {
  const auto by_key = [](const Task& a, const Task& b) { return a.key < b.key; };
  std::stable_sort(tasks_.begin(), tasks_.end(), by_key);
  for (const Wait& wait : waits_) {
    const auto [first, last] =
        std::equal_range(tasks_.begin(), tasks_.end(), Task{wait.parent_key, 0}, by_key);
    if (last - first == 1) {
      into.edges.push_back({first->job, wait.child});
      continue;
    }
    const auto key = static_cast<std::uint32_t>(wait.parent_key);
    const std::string label = keys_ == Keys::kNames ? into.names[key] : std::to_string(key);
    TRY_VOID(leave_out(
        Error{Code::kCorrupt,
              fmt::format("{}: parent {} is {} of graph {}", csv.text_of(wait.place),
                          in_quotes(label), first == last ? "no task" : "more than one task",
                          in_quotes(into.graphs[(wait.parent_key >> 32U) - 1].name))},
        options, into));
  }
  if (const auto on_cycle = job_on_cycle(into)) {
    const auto wait = std::find_if(waits_.begin(), waits_.end(),
                                   [&](const Wait& w) { return w.child == *on_cycle; });
    CHECK(wait != waits_.end());
    return Error{Code::kCorrupt,
                 fmt::format("{}: task {} waits for itself", csv.text_of(wait->place),
                             in_quotes(into.names[into.jobs[*on_cycle].name]))};
  }
  sort_jobs(into);
  return {};
}

Result<void> check_exportable(const Workload& workload) {
  for (const auto* table : {&workload.names, &workload.groups, &workload.gpu_types}) {
    CHECK(!table->empty() && table->front().empty());
    for (const std::string& text : *table) {
      if (text.size() <= kNameBytesMax && simdjson::validate_utf8(text)) continue;
      return Error{
          Code::kUnsupported,
          fmt::format("export workload: a name is too long or not UTF-8: {}", in_quotes(text))};
    }
  }
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    const Job& job = workload.jobs[i];
    CHECK(job.name < workload.names.size() && job.group < workload.groups.size());
    CHECK(job.graph <= workload.graphs.size() && job.gpu_type < workload.gpu_types.size());
    const Nanos greatest{kTimeNsMax};
    if (job.submit < Nanos{0} || job.submit > greatest)
      return unsupported(workload, i, "its submission is negative or later than 133 years");
    if (job.duration > greatest || job.scheduled > greatest)
      return unsupported(workload, i, "a time is longer than 133 years");
    if (job.scheduled >= Nanos{0} && job.scheduled < job.submit)
      return unsupported(workload, i, "it is scheduled before its submission");
    if (job.gpus < 0 || job.gpus > kGpusMax || job.instances < 1 || job.instances > kInstancesMax)
      return unsupported(workload, i, "its number of GPUs or instances is invalid");
    if (job.gpus > 0 && (job.gpu_milli < 1 || job.gpu_milli > 1000))
      return unsupported(workload, i, "its share of a GPU is not within 1..1000");
    if (job.gpus > 1 && job.gpu_milli < 1000)
      return unsupported(workload, i, "it shares more than one GPU");
    for (const std::int64_t amount : {job.cpu_milli, job.memory_mib, job.read_bytes,
                                      job.written_bytes, job.tokens_in, job.tokens_out}) {
      if (amount > kAmountMax) return unsupported(workload, i, "an amount is beyond 10^18");
    }
  }
  for (const Edge& edge : workload.edges)
    CHECK(edge.parent < workload.jobs.size() && edge.child < workload.jobs.size());
  return {};
}

Result<std::int64_t> epoch_for_export(const Workload& workload) {
  std::int64_t epoch = kDefaultEpochNs;
  if (!workload.epoch.empty()) {
    const auto parsed = parse_civil_ns(workload.epoch);
    if (!parsed) {
      return Error{Code::kUnsupported,
                   fmt::format("export workload: its epoch is not a civil time: {}",
                               in_quotes(workload.epoch))};
    }
    epoch = *parsed;
  } else if (workload.epoch_in_week_s > 0) {
    epoch += workload.epoch_in_week_s % (std::int64_t{7} * 86'400) * 1'000'000'000;
  }
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    if (workload.jobs[i].submit.count() > kCivilNsMax - epoch)
      return unsupported(workload, i, "it is submitted after the year 2099");
  }
  return epoch;
}

}  // namespace kansoku::simulate::import
