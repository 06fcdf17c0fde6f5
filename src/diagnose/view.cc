// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "common/parse.h"
#include "diagnose/diagnose.h"
#include "diagnose/internal/rounded.h"

namespace kansoku::diagnose {
namespace {

// Means over equal runs of steps, at most `column_count_max` of them.
Json heat_row(const std::vector<double>& values, std::size_t column_count_max) {
  const std::size_t columns = std::min(values.size(), column_count_max);
  Json row = Json::array();
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t begin = c * values.size() / columns;
    const std::size_t end = (c + 1) * values.size() / columns;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i)
      sum += values[i];
    row.push(rounded(sum / static_cast<double>(end - begin)));
  }
  return row;
}

Json heat(const std::vector<std::vector<double>>& rows, std::size_t column_count_max) {
  Json out = Json::array();
  for (const auto& row : rows)
    out.push(heat_row(row, column_count_max));
  return out;
}

Json worst_step(const Diagnosis& diagnosis) {
  Json ranks = Json::array();
  for (std::size_t r = 0; r < diagnosis.view.worst_spans.size(); ++r) {
    Json spans = Json::array();
    for (const Span& span : diagnosis.view.worst_spans[r]) {
      spans.push(Json::object()
                     .set("phase", phase_name(span.phase))
                     .set("start_ms", rounded(span.start_ms))
                     .set("duration_ms", rounded(span.duration_ms))
                     .set("name", span.name.empty() ? phase_name(span.phase) : span.name)
                     .set("critical", span.is_critical));
    }
    ranks.push(Json::object().set("rank", diagnosis.ranks[r].rank).set("spans", spans));
  }
  return Json::object()
      .set("index", static_cast<std::uint64_t>(diagnosis.view.worst_step))
      .set("ranks", ranks);
}

Json hang_groups(const ViewData& view) {
  Json out = Json::array();
  for (const HangGroup& group : view.hang_groups) {
    out.push(Json::object()
                 .set("place", group.place)
                 .set("ranks", Json::array_of(group.ranks))
                 .set("stack", Json::array_of(group.stack))
                 .set("culprit", group.is_culprit));
  }
  return out;
}

Json worker_scores(const ViewData& view) {
  Json out = Json::array();
  for (const auto& stage : view.worker_scores) {
    Json row = Json::array();
    for (const double score : stage)
      row.push(rounded(score));
    out.push(row);
  }
  return out;
}

Json functions(const ViewData& view) {
  Json rows = Json::array();
  for (const FunctionRow& row : view.functions) {
    rows.push(Json::object()
                  .set("function", row.function)
                  .set("file", row.file)
                  .set("line", row.line)
                  .set("culprit_ms", rounded(row.culprit_ms))
                  .set("peers_ms", rounded(row.peers_ms))
                  .set("difference_ms", rounded(row.culprit_ms - row.peers_ms)));
  }
  return rows;
}

Json phase_rows(const Diagnosis& diagnosis) {
  Json rows = Json::array();
  for (const RankSummary& rank : diagnosis.ranks) {
    Json row = Json::object().set("rank", rank.rank);
    for (std::size_t p = 0; p < kPhaseCount; ++p)
      row.set(phase_name(static_cast<Phase>(p)), rounded(rank.phase_ms[p]));
    rows.push(row);
  }
  return rows;
}

// "2026-11-21 07:51:00 UTC" of nanoseconds since 1970; empty for a time that no clock shows.
std::string utc_text(const std::string& unix_ns) {
  const auto ns = parse_int<std::int64_t>(unix_ns);
  if (!ns || *ns < 0) return {};
  const std::chrono::sys_seconds time{std::chrono::seconds{*ns / 1'000'000'000}};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss clock{time - day};
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

Json facts(const trace::Trace& trace, const Diagnosis& diagnosis) {
  const double begin_ns = static_cast<double>(trace.begin_ns);
  const double end_ns = static_cast<double>(trace.end_ns);
  const std::size_t events = trace.slices.size() + trace.instants.size() + trace.counters.size() +
                             trace.samples.size() + trace.switches.size() + trace.wakes.size();
  const auto metadata = [&trace](const std::string& key) {
    const auto found = trace.metadata.find(key);
    return found == trace.metadata.end() ? std::string{} : found->second;
  };
  return Json::object()
      .set("job", diagnosis.job)
      .set("host", metadata("kansoku.host"))
      .set("recorded_at", utc_text(metadata("kansoku.recorded_at_unix_ns")))
      .set("duration_s", rounded(std::max(0.0, (end_ns - begin_ns) / 1e9)))
      .set("events", static_cast<std::uint64_t>(events))
      .set("version", metadata("kansoku.version"));
}

}  // namespace

Json view_json(const trace::Trace& trace, const Diagnosis& diagnosis) {
  Json ranks = Json::array();
  for (const RankSummary& rank : diagnosis.ranks)
    ranks.push(rank.rank);
  const std::size_t columns = diagnosis.heat_column_count_max;
  return Json::object()
      .set("schema", "kansoku.view/2")
      .set("facts", facts(trace, diagnosis))
      .set("ranks", ranks)
      .set("steps", static_cast<std::uint64_t>(diagnosis.steps.count))
      .set("heat", heat(diagnosis.view.work_ms, columns))
      .set("wait_heat", heat(diagnosis.view.wait_ms, columns))
      .set("phases", phase_rows(diagnosis))
      .set("worst_step", worst_step(diagnosis))
      .set("function_rank",
           diagnosis.view.function_rank ? Json(*diagnosis.view.function_rank) : Json())
      .set("functions", functions(diagnosis.view))
      .set("hang_groups", hang_groups(diagnosis.view))
      .set("worker_scores", worker_scores(diagnosis.view));
}

}  // namespace kansoku::diagnose
