// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "simulate/workload/arrivals.h"
#include "simulate/workload/internal/job_table.h"
#include "simulate/workload/internal/json_reader.h"
#include "simulate/workload/internal/week.h"

namespace kansoku::simulate {
namespace {

using internal::corrupt;
using internal::ObjectReader;

constexpr double kIntensityMax = 1000;
constexpr double kRateMax = 1e9;     // an hour
constexpr double kSecondsMax = 4e9;  // 127 years, inside a stream's end

bool has_gap(ArrivalKind kind) {
  return kind == ArrivalKind::kConstant || kind == ArrivalKind::kRenewal;
}
bool has_rates(ArrivalKind kind) {
  return kind == ArrivalKind::kHourOfWeekPoisson || kind == ArrivalKind::kSessions;
}
bool has_jobs(ArrivalKind kind) {
  return kind == ArrivalKind::kSessions || kind == ArrivalKind::kDayBlocks ||
         kind == ArrivalKind::kReplay;
}

/// A distribution of gaps that a stream can use.
Result<stats::Distribution> gap_from_json(const Json& untrusted, const std::string& path) {
  auto gap = stats::Distribution::from_json(untrusted);
  if (!gap) return corrupt(path, gap.error().what);
  if (!(gap->quantile(1 - 1e-9) > 0))
    return corrupt(path, "every gap is 0: time would not advance");
  if (std::isinf(gap->mean())) return corrupt(path, "its mean is infinite: give a cap");
  return gap;
}

Result<void> read_gaps(const ObjectReader& reader, ArrivalModel& model) {
  if (has_gap(model.kind)) {
    TRY(const auto gap, reader.member("gap"));
    TRY(model.gap, gap_from_json(gap, reader.path_of("gap")));
  }
  if (model.kind != ArrivalKind::kHourOfWeekRenewal) return {};
  TRY(model.gap_cap_s, reader.number("gap_cap_s", 1e-9, kSecondsMax));
  TRY(const auto gaps, reader.member("hour_gaps"));
  if (!gaps.is_array() || gaps.size() != kHoursOfWeek)
    return corrupt(reader.path_of("hour_gaps"), "not an array of 168 distributions");
  for (std::size_t h = 0; h < kHoursOfWeek; ++h) {
    TRY(auto gap, gap_from_json(gaps.at(h), fmt::format("{}[{}]", reader.path_of("hour_gaps"), h)));
    model.hour_gaps.push_back(std::move(gap));
  }
  return {};
}

Result<void> read_rates(const ObjectReader& reader, ArrivalModel& model) {
  if (!has_rates(model.kind)) return {};
  TRY(model.rates, reader.numbers("rates", 0, kRateMax));
  if (model.rates.size() != kHoursOfWeek)
    return corrupt(reader.path_of("rates"), "not 168 numbers");
  if (std::none_of(model.rates.begin(), model.rates.end(), [](double rate) { return rate > 0; }))
    return corrupt(reader.path_of("rates"), "no rate is above 0");
  return {};
}

bool in_order(const std::vector<Job>& jobs, std::size_t first, std::size_t count) {
  const auto begin = jobs.begin() + static_cast<std::ptrdiff_t>(first);
  return std::is_sorted(begin, begin + static_cast<std::ptrdiff_t>(count),
                        [](const Job& a, const Job& b) { return a.submit < b.submit; });
}

/// The jobs of the sessions follow each other in the table.
Result<void> read_sessions(const ObjectReader& reader, ArrivalModel& model) {
  TRY(model.session_gap_s, reader.number("session_gap_s", 0, kSecondsMax));
  TRY(const auto hours, reader.integers("session_hours", 0, kHoursOfWeek - 1));
  TRY(const auto counts,
      reader.integers("session_jobs", 1, static_cast<std::int64_t>(internal::kElementsMax)));
  if (hours.size() != counts.size() || hours.empty())
    return corrupt(reader.path_of("session_jobs"),
                   fmt::format("{} elements, but session_hours has {}; at least one is needed",
                               counts.size(), hours.size()));
  std::size_t first = 0;
  for (std::size_t i = 0; i < hours.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", reader.path_of("session_jobs"), i);
    const auto count = static_cast<std::size_t>(counts[i]);
    if (count > model.jobs.size() - first) return corrupt(path, "beyond the jobs");
    if (!in_order(model.jobs, first, count)) return corrupt(path, "jobs are not in order of time");
    model.sessions.push_back({static_cast<std::int32_t>(hours[i]),
                              static_cast<std::uint32_t>(first),
                              static_cast<std::uint32_t>(count)});
    first += count;
  }
  if (first != model.jobs.size())
    return corrupt(reader.path_of("session_jobs"), "jobs are left over");
  return {};
}

Result<void> read_jobs(const ObjectReader& reader, ArrivalModel& model) {
  if (!has_jobs(model.kind)) return {};
  TRY(model.groups, reader.texts("groups"));
  TRY(model.gpu_types, reader.texts("gpu_types"));
  TRY(const auto jobs, reader.member("jobs"));
  TRY(model.jobs, internal::jobs_from_json(jobs, reader.path_of("jobs"), model.groups.size(),
                                           model.gpu_types.size()));
  if (model.jobs.empty()) return corrupt(reader.path_of("jobs"), "there is no job");
  if (model.kind == ArrivalKind::kSessions) return read_sessions(reader, model);
  if (!in_order(model.jobs, 0, model.jobs.size()))
    return corrupt(reader.path_of("jobs.submit_ns"), "not in order of time");
  if (model.kind == ArrivalKind::kDayBlocks &&
      (model.epoch_in_week_s % 86'400 != 0 || model.span_s < 86'400 ||
       model.jobs.back().submit >= internal::nanos_of(model.span_s)))
    return corrupt(reader.path_of("span_s"), "not whole days from a midnight that hold all jobs");
  return {};
}

Json session_columns(const std::vector<ArrivalModel::Session>& sessions, bool hours) {
  Json out = Json::array();
  for (const auto& session : sessions)
    out.push(hours ? Json(session.hour) : Json(session.count));
  return out;
}

}  // namespace

Json ArrivalModel::to_json() const {
  Json out = Json::object();
  out.set("kind", kind_name(kind)).set("intensity", intensity).set("span_s", span_s);
  out.set("epoch_in_week_s", epoch_in_week_s);
  if (has_gap(kind)) out.set("gap", gap.to_json());
  if (kind == ArrivalKind::kHourOfWeekRenewal) {
    Json gaps = Json::array();
    for (const auto& of_hour : hour_gaps)
      gaps.push(of_hour.to_json());
    out.set("gap_cap_s", gap_cap_s).set("hour_gaps", std::move(gaps));
  }
  if (has_rates(kind)) out.set("rates", internal::json_of(rates));
  if (!has_jobs(kind)) return out;
  out.set("groups", internal::json_of(groups)).set("gpu_types", internal::json_of(gpu_types));
  if (kind == ArrivalKind::kSessions) {
    out.set("session_gap_s", session_gap_s);
    out.set("session_hours", session_columns(sessions, true));
    out.set("session_jobs", session_columns(sessions, false));
  }
  out.set("jobs", internal::jobs_to_json(jobs));
  return out;
}

Result<ArrivalModel> ArrivalModel::from_json(const Json& untrusted) {
  TRY(const auto reader,
      ObjectReader::make(untrusted, "arrivals",
                         {"kind", "intensity", "span_s", "epoch_in_week_s", "gap", "gap_cap_s",
                          "hour_gaps", "rates", "groups", "gpu_types", "session_gap_s",
                          "session_hours", "session_jobs", "jobs"}));
  ArrivalModel model;
  TRY(const auto name, reader.text("kind"));
  const auto kind = kind_from_name(name);
  if (!kind) return corrupt(reader.path_of("kind"), fmt::format("unknown kind \"{}\"", name));
  model.kind = *kind;
  if (reader.has("intensity")) {
    TRY(model.intensity, reader.number("intensity", 1e-6, kIntensityMax));
  }
  if (reader.has("span_s")) {
    TRY(model.span_s, reader.number("span_s", 0, kSecondsMax));
  }
  if (reader.has("epoch_in_week_s")) {
    TRY(model.epoch_in_week_s, reader.integer("epoch_in_week_s", 0, 7 * 86'400 - 1));
  }
  TRY_VOID(read_gaps(reader, model));
  TRY_VOID(read_rates(reader, model));
  TRY_VOID(read_jobs(reader, model));
  return model;
}

}  // namespace kansoku::simulate
