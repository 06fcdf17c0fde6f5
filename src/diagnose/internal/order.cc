// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/order.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace kansoku::diagnose {

void sort_findings(std::vector<Finding>& findings) {
  const auto order = [](const Finding& f) {
    const bool is_still = f.kind == "hang" || f.kind == "stopped";
    return std::tuple(is_still                      ? 0
                      : f.kind == "memory_pressure" ? 1
                                                    : 2,
                      -f.cost_ms_per_step, -f.share);
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding& a, const Finding& b) { return order(a) < order(b); });
}

std::vector<std::int32_t> victims_of(const std::vector<std::int32_t>& ranks,
                                     const std::vector<Finding>& findings) {
  std::vector<std::int32_t> culprits;
  for (const Finding& finding : findings) {
    // These hold nobody else up.
    if (finding.kind != "common_input" && finding.kind != "memory_pressure")
      culprits.insert(culprits.end(), finding.ranks.begin(), finding.ranks.end());
  }
  std::vector<std::int32_t> victims;
  for (const std::int32_t rank : ranks) {
    const bool is_culprit = std::find(culprits.begin(), culprits.end(), rank) != culprits.end();
    if (!culprits.empty() && !is_culprit) victims.push_back(rank);
  }
  return victims;
}

Diagnosis join_jobs(std::vector<Diagnosis> jobs) {
  const auto badness = [](const Diagnosis& d) {
    static constexpr std::array kOrder{Verdict::kFindings, Verdict::kNotEnoughData,
                                       Verdict::kNothingFound};
    const auto verdict = std::find(kOrder.begin(), kOrder.end(), d.verdict()) - kOrder.begin();
    return std::pair(verdict, d.findings.empty() ? 0.0 : -d.findings.front().share);
  };
  std::stable_sort(jobs.begin(), jobs.end(),
                   [&](const Diagnosis& a, const Diagnosis& b) { return badness(a) < badness(b); });
  Diagnosis out = std::move(jobs.front());
  jobs.erase(jobs.begin());
  out.other_jobs = std::move(jobs);
  return out;
}

}  // namespace kansoku::diagnose
