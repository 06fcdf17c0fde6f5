// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "infer/graph_view.h"
#include "infer/report.h"

namespace kansoku::infer {
namespace {

constexpr std::size_t kWindowsMax = 500;
constexpr std::size_t kCachePointsMax = 1000;

double seconds_since(std::int64_t begin_ns, std::int64_t at_ns) {
  const double ns = static_cast<double>(at_ns) - static_cast<double>(begin_ns);
  return std::round(ns * 1e-3) * 1e-6;
}

std::int64_t begin_of(const Run& run) {
  std::int64_t begin = INT64_MAX;
  for (const Window& window : run.windows)
    begin = std::min(begin, window.span.begin_ns);
  for (const Process& process : run.processes)
    if (!process.micro_batches.empty())
      begin = std::min(begin, process.micro_batches.front().span.begin_ns);
  return begin;
}

// Windows that meet or overlap are one.
Json windows_json(const Run& run, std::int64_t begin_ns) {
  std::vector<Span> spans;
  for (const Window& window : run.windows)
    spans.push_back(window.span);
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Span> joined;
  for (const Span& span : spans) {
    if (!joined.empty() && span.begin_ns <= joined.back().end_ns)
      joined.back().end_ns = std::max(joined.back().end_ns, span.end_ns);
    else
      joined.push_back(span);
  }
  Json out = Json::array();
  if (joined.size() > kWindowsMax) return out;  // too many to be told apart
  for (const Span& span : joined)
    out.push(Json::array()
                 .push(seconds_since(begin_ns, span.begin_ns))
                 .push(seconds_since(begin_ns, span.end_ns)));
  return out;
}

Json timeline_json(const ProcessFigures& figures, std::int64_t begin_ns) {
  Json out = Json::array();
  for (const TokenRow& row : figures.timeline)
    out.push(Json::array()
                 .push(seconds_since(begin_ns, row.begin_ns))
                 .push(std::round(row.ms * 1e6) / 1e6)
                 .push(row.tokens)
                 .push(phase_name(row.phase)));
  return out;
}

// Cells that the sequences take, by their positions: as CacheRow::used_max counts them.
Json cache_json(const Process& process, std::int64_t begin_ns) {
  Json out = Json::array();
  std::map<std::int32_t, std::int64_t> used;  // by sequence
  std::int64_t sum = 0;
  const auto& list = process.micro_batches;
  const std::size_t step =
      std::max<std::size_t>(1, (list.size() + kCachePointsMax - 1) / kCachePointsMax);
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (const Row& token : list[i].rows) {
      std::int64_t& of = used[token.sequence];
      sum += token.position + std::int64_t{1} - of;
      of = token.position + std::int64_t{1};
    }
    if (i % step == 0 || i + 1 == list.size())
      out.push(Json::array().push(seconds_since(begin_ns, list[i].span.end_ns)).push(sum));
  }
  return out;
}

}  // namespace

Json view_json(const Run& run, const Report& report) {
  const std::int64_t begin_ns = begin_of(run);
  Json processes = Json::array();
  for (std::size_t i = 0; i < std::min(run.processes.size(), report.processes.size()); ++i) {
    const Process& process = run.processes[i];
    const ProcessFigures& figures = report.processes[i];
    processes.push(Json::object()
                       .set("pid", process.pid)
                       .set("timeline", timeline_json(figures, begin_ns))
                       .set("cache", cache_json(process, begin_ns))
                       .set("graph", graph_view_json(process, figures, *run.trace)));
  }
  return Json::object()
      .set("schema", "kansoku.llm.view")
      .set("version", 1)
      .set("windows", windows_json(run, begin_ns))
      .set("processes", std::move(processes));
}

}  // namespace kansoku::infer
