// SPDX-License-Identifier: Apache-2.0
#include "bursts_weeks.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>

#include "common/parse.h"
#include "simulate/import/import.h"

namespace kansoku::simulate {

namespace {

/// Days since 1970-01-01 of "2017-09-25..."; -1 if it is no date.
std::int64_t day_of(std::string_view text) {
  if (text.size() < 10) return -1;
  const auto year = parse_int<int>(text.substr(0, 4));
  const auto month = parse_int<unsigned>(text.substr(5, 2));
  const auto day = parse_int<unsigned>(text.substr(8, 2));
  if (!year || !month || !day) return -1;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month),
                                         std::chrono::day(*day)};
  if (!date.ok()) return -1;
  return std::chrono::sys_days(date).time_since_epoch().count();
}

}  // namespace

Result<Recording> read_weeks(const std::string& path, const std::string& from, int count) {
  std::ifstream file(path);
  std::istream& in = path == "-" ? std::cin : file;
  if (!in) return Error{Code::kNotFound, fmt::format("open {}: not found", path)};
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  TRY(const Workload workload, import::import_workload(import::Format::kPhilly, text, path));
  const std::int64_t first_day = day_of(workload.epoch);
  if (day_of(from) < 0 || first_day < 0)
    return Error{Code::kCorrupt,
                 fmt::format("dates \"{}\", \"{}\": not YYYY-MM-DD", from, workload.epoch)};
  const std::int64_t skipped = (day_of(from) - (first_day - workload.epoch_in_week_s / 86'400)) / 7;
  Recording out;
  out.all = workload.jobs;
  out.groups = workload.groups;
  out.weeks.resize(static_cast<std::size_t>(count));
  for (Job job : workload.jobs) {
    const std::int64_t since_monday = workload.epoch_in_week_s * 1'000'000'000 + job.submit.count();
    // Time 0 is at or after its Monday: never negative, so division truncates as wanted.
    const std::int64_t week = since_monday / kWeekLength.count() - skipped;
    if (week < 0 || week >= count) continue;
    job.submit = Nanos{since_monday % kWeekLength.count()};
    out.weeks[static_cast<std::size_t>(week)].push_back(job);
  }
  return out;
}

Workload join_weeks(const Recording& recording, const std::vector<int>& numbers) {
  Workload out;
  out.groups = recording.groups;
  out.epoch_in_week_s = 0;
  Nanos begin{0};
  for (const int number : numbers) {
    for (Job job : recording.weeks.at(static_cast<std::size_t>(number - 1))) {
      job.submit += begin;
      out.jobs.push_back(job);
    }
    begin += kWeekLength;
  }
  return out;
}

std::string list_of(const std::vector<int>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ", "));
}

}  // namespace kansoku::simulate
