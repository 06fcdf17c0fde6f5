// SPDX-License-Identifier: Apache-2.0
#include "diagnose/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::string_view kSchema = "kansoku.baseline/2";
constexpr std::uint32_t kBaselineResamples = 1000;
constexpr std::size_t kFunctionsMax = 200;
constexpr std::size_t kComparedLinesMax = 3;

struct Interval95 {
  double low{0}, high{0};
};

/// Interval of the median, by block bootstrap: steps that follow each other are alike.
Interval95 median_interval(const std::vector<double>& values) {
  stats::BlockBootstrap bootstrap(values.size(), stats::default_block_length(values.size()), 1);
  std::vector<double> medians, drawn;
  for (std::uint32_t i = 0; i < kBaselineResamples; ++i) {
    drawn.clear();
    for (const stats::Block& block : bootstrap.draw()) {
      for (std::size_t k = 0; k < block.count; ++k)
        drawn.push_back(values[(block.begin + k) % values.size()]);
    }
    medians.push_back(stats::median(drawn));
  }
  return {stats::quantile(medians, stats::kTail), stats::quantile(medians, 1 - stats::kTail)};
}

/// Mean milliseconds a step over the ranks.
std::map<std::string, double> phases_of(const Diagnosis& diagnosis) {
  std::map<std::string, double> out;
  for (const RankSummary& rank : diagnosis.ranks) {
    for (std::size_t p = 0; p < kPhaseCount; ++p) {
      out[std::string(phase_name(static_cast<Phase>(p)))] +=
          rank.phase_ms[p] / static_cast<double>(diagnosis.ranks.size());
    }
  }
  return out;
}

std::map<std::string, double> functions_of(const Diagnosis& diagnosis) {
  std::map<std::string, double> out;
  for (const NamedPattern& named : diagnosis.patterns) {
    for (const PatternRow& row : named.pattern.rows) {
      if (row.activity == Activity::kCollective) continue;
      out[named.names[row.function]] +=
          row.beta * diagnosis.steps.mean_ms / static_cast<double>(diagnosis.patterns.size());
    }
  }
  return out;
}

Json table(const std::map<std::string, double>& values) {
  std::vector<std::pair<double, std::string>> order;
  order.reserve(values.size());
  for (const auto& [name, value] : values)
    order.emplace_back(-value, name);
  std::sort(order.begin(), order.end());
  Json out = Json::object();
  for (std::size_t i = 0; i < std::min(order.size(), kFunctionsMax); ++i)
    out.set(order[i].second, -order[i].first);
  return out;
}

/// Quantities that grew, greatest growth first.
std::vector<std::pair<double, std::string>> growth(const std::map<std::string, double>& now,
                                                   const Json& before) {
  std::vector<std::pair<double, std::string>> out;
  for (const auto& [name, value] : now) {
    const double more = value - before.at(name).as_double();
    if (more >= kGrowthMinMs) out.emplace_back(-more, name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<Json> make_baseline(const Diagnosis& diagnosis) {
  if (diagnosis.steps.durations_ms.size() < 2)
    return Error{Code::kNotFound, "make baseline: the diagnosis has no steps"};
  if (!diagnosis.findings.empty()) {
    return Error{Code::kUnsupported, "make baseline: this run is not healthy, it has findings",
                 "record a run in which `kansoku diagnose` finds nothing"};
  }
  const Interval95 interval = median_interval(diagnosis.steps.durations_ms);
  return Json::object()
      .set("schema", kSchema)
      .set("ranks", static_cast<std::uint64_t>(diagnosis.ranks.size()))
      .set("steps", static_cast<std::uint64_t>(diagnosis.steps.durations_ms.size()))
      .set("median_ms", stats::median(diagnosis.steps.durations_ms))
      .set("median_low_ms", interval.low)
      .set("median_high_ms", interval.high)
      .set("phases", table(phases_of(diagnosis)))
      .set("functions", table(functions_of(diagnosis)));
}

Result<std::optional<Finding>> compare_with_baseline(const Diagnosis& diagnosis,
                                                     const Json& untrusted) {
  if (untrusted.at("schema").as_string() != kSchema)
    return Error{Code::kUnsupported, fmt::format("read baseline: not of schema {}", kSchema)};
  const auto ranks = static_cast<std::int64_t>(diagnosis.ranks.size());
  if (untrusted.at("ranks").as_int() != ranks) {
    return Error{Code::kUnsupported, fmt::format("read baseline: of {} ranks, this job has {}",
                                                 untrusted.at("ranks").as_int(), ranks)};
  }
  const double before_ms = untrusted.at("median_ms").as_double();
  const double before_high_ms = untrusted.at("median_high_ms").as_double();
  const std::vector<double>& durations = diagnosis.steps.durations_ms;
  if (durations.size() < 2 || !(before_ms > 0)) return std::optional<Finding>{};
  const double now_ms = stats::median(durations);
  const Interval95 now = median_interval(durations);
  if (now_ms <= kSlowdownMin * before_ms || now.low <= before_high_ms)
    return std::optional<Finding>{};
  Finding finding;
  finding.kind = "regression";
  for (const RankSummary& rank : diagnosis.ranks)
    finding.ranks.push_back(rank.rank);
  finding.cost_ms_per_step = now_ms - before_ms;
  finding.share = (now_ms - before_ms) / now_ms;
  finding.confidence = finding.rank_confidence = 0.95;
  finding.evidence.push_back(fmt::format(words::kRegression, now_ms, now.low, now.high, before_ms,
                                         untrusted.at("median_low_ms").as_double(), before_high_ms,
                                         now_ms / before_ms));
  const auto phases = growth(phases_of(diagnosis), untrusted.at("phases"));
  const auto functions = growth(functions_of(diagnosis), untrusted.at("functions"));
  if (!phases.empty()) finding.phase = phases.front().second;
  if (!functions.empty())
    finding.function = functions.front().second.substr(0, functions.front().second.find(" < "));
  for (std::size_t i = 0; i < std::min(phases.size(), kComparedLinesMax); ++i) {
    finding.evidence.push_back(fmt::format(words::kPhaseGrew, phases[i].second, -phases[i].first));
  }
  for (std::size_t i = 0; i < std::min(functions.size(), kComparedLinesMax); ++i) {
    finding.evidence.push_back(
        fmt::format(words::kFunctionGrew, functions[i].second, -functions[i].first));
  }
  return std::optional<Finding>{std::move(finding)};
}

void add_regression(Diagnosis& diagnosis, Finding regression) {
  const auto queueing = std::find_if(
      diagnosis.findings.begin(), diagnosis.findings.end(),
      [](const Finding& f) { return f.kind == "cpu_contention" || f.kind == "cpu_throttled"; });
  if (regression.phase == phase_name(Phase::kRunnable) && queueing != diagnosis.findings.end()) {
    queueing->evidence.push_back(regression.evidence.front());
  } else {
    diagnosis.findings.push_back(std::move(regression));
  }
}

}  // namespace kansoku::diagnose
