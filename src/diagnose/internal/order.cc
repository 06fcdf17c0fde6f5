// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace kansoku::diagnose {

verdict::Claim claim_of(const Finding& finding) {
  return {finding.kind, finding.detail,           finding.ranks, finding.function,
          finding.file, finding.cost_ms_per_step, finding.share};
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

std::string name_of_process(const trace::Trace& trace, std::int32_t pid) {
  std::string_view name = "process";
  for (const trace::Process& process : trace.processes) {
    if (process.pid == pid && !trace.str(process.name).empty()) name = trace.str(process.name);
  }
  return fmt::format("{} {}", name, pid);
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
