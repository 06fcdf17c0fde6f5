// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/watch_state.h"

#include <algorithm>
#include <cmath>

#include "detect/internal/tail.h"

namespace kansoku::detect {
namespace {

constexpr std::size_t kEvidenceMax = 8;
constexpr std::size_t kRowsMax = 100;
constexpr double kShareOfBudget = 0.5, kReserve = 0.1;
constexpr double kOwnCostMin = 4, kOwnCostMax = 40;  // spreads; beyond it, more says no more
constexpr double kStrongest = 2;  // of two ranks one is named if its excess is so much larger

}  // namespace

AlarmCounts choose_counts(double flags, double points, double correlation, double members,
                          double windows_per_day, double budget) {
  AlarmCounts out;
  const double trials = std::max(1.0, members) * windows_per_day;
  const double alpha = budget * kShareOfBudget * kReserve / trials / 2;  // two spans
  const double share = (flags + 0.5) / (points + 1);
  const auto count = [&](std::size_t windows, std::uint32_t least, std::uint32_t most) {
    return std::clamp(smallest_k(static_cast<std::uint32_t>(windows), share, correlation, alpha),
                      least, most);
  };
  out.of_short = count(kShortWindows, 3, kShortWindows);
  out.of_long = count(kLongWindows, 6, kLongWindows);
  const auto rate = [&](double p) {
    return trials * (upper_share(out.of_short, kShortWindows, p, correlation) +
                     upper_share(out.of_long, kLongWindows, p, correlation));
  };
  const ShareInterval interval = share_interval(flags, points);
  out.per_day = rate(share);
  out.low = rate(interval.low);
  out.high = rate(interval.high);
  return out;
}

OpenIncident::OpenIncident(const DetectorOptions& options, std::int64_t begin_ns)
    : last_ns(begin_ns) {
  record_.host = options.host;
  record_.job = options.job;
  record_.begin_ns = begin_ns;
}

void OpenIncident::add(MemberKey key, const Member& member, const Member::Recent& recent,
                       Scorer& scorer) {
  const JobModel::Parts& parts = scorer.model().parts();
  const auto contributions = scorer.explain(recent.row, kEvidenceMax);
  Part& part = seen_[key];
  part.rank = member.rank;
  part.pid = member.pid;
  part.sum.add(parts, recent.row, contributions);
  all_.add(parts, recent.row, contributions);
  if (!std::isnan(recent.score)) {
    part.excess += recent.score - parts.threshold;
    part.windows += 1;
  }
  record_.score = std::max(record_.score, part.excess / std::max(1.0, part.windows));
  ++record_.window_count;
  last_ns = std::max(last_ns, recent.wall_ns);
  if (rows.size() < kRowsMax * recent.row.size())
    rows.insert(rows.end(), recent.row.begin(), recent.row.end());
}

void OpenIncident::include(MemberKey key, const Member& member, bool is_peer) {
  Part& part = members_[key];
  part.rank = member.rank;
  part.pid = member.pid;
  part.peer_votes += is_peer ? 1 : 0;
  part.is_alarmed = part.is_alarmed || !is_peer;
}

// Where ranks wait for each other all of them are slow; the one that the others wait for is the one
// whose own work costs more.
std::vector<MemberKey> OpenIncident::by_own_cost(std::span<const Column> columns,
                                                 std::size_t member_count) const {
  std::vector<std::pair<MemberKey, double>> costs;
  double most = 0;
  for (const auto& [key, part] : seen_) {
    costs.emplace_back(key, std::min(own_cost(part.sum, columns), kOwnCostMax));
    most = std::max(most, costs.back().second);
  }
  std::vector<MemberKey> out;
  if (most < kOwnCostMin || member_count < 2) return out;
  for (const auto& [key, cost] : costs)
    if (2 * cost >= most) out.push_back(key);
  if (2 * out.size() > member_count) out.clear();
  return out;
}

std::vector<MemberKey> OpenIncident::named(std::span<const Column> columns,
                                           std::size_t member_count) const {
  std::vector<MemberKey> out = by_own_cost(columns, member_count);
  if (!out.empty()) return out;
  int most = 0;
  for (const auto& [key, part] : members_)
    most = std::max(most, part.peer_votes);
  for (const auto& [key, part] : members_)
    if (most > 0 && 2 * part.peer_votes >= most) out.push_back(key);
  if (!out.empty() || member_count < 2) return out;
  const auto excess = [&](MemberKey key) {
    const auto found = seen_.find(key);
    if (found == seen_.end()) return 0.0;
    return found->second.excess / std::max(1.0, found->second.windows);
  };
  for (const auto& [key, part] : members_)
    if (part.is_alarmed) out.push_back(key);
  if (member_count == 2 && out.size() == 2) {
    const double first = excess(out[0]), second = excess(out[1]);
    if (first > kStrongest * second) return {out[0]};
    if (second > kStrongest * first) return {out[1]};
    return {};
  }
  if (out.size() > std::max<std::size_t>(1, member_count / 4)) out.clear();
  return out;
}

bool OpenIncident::update(std::span<const Column> columns, std::size_t member_count) {
  const std::string kind_before = record_.kind;
  const std::size_t ranks_before = record_.ranks.size(), tests_before = record_.tests.size();
  const std::vector<MemberKey> keys = named(columns, member_count);
  record_.ranks.clear();
  record_.pids.clear();
  EvidenceSum const* sum = &all_;
  for (const MemberKey key : keys) {
    const auto alarmed = members_.find(key);
    const Part& part = alarmed != members_.end() ? alarmed->second : seen_.at(key);
    if (part.rank >= 0) record_.ranks.push_back(part.rank);
    record_.pids.push_back(part.pid);
    const auto found = seen_.find(key);
    if (found != seen_.end() && !found->second.sum.empty() && keys.size() == 1)
      sum = &found->second.sum;
  }
  if (keys.empty() && member_count == 1 && !members_.empty())
    record_.pids.push_back(members_.begin()->second.pid);
  record_.tests.assign(tests_.begin(), tests_.end());
  record_.evidence = sum->evidence(columns, kEvidenceMax);
  record_.kind = kind_of(*sum, columns);
  if (record_.id.empty())
    record_.id = trace::incident_id(record_.host, record_.job, record_.begin_ns, record_.kind);
  record_.summary = summary_of(record_, *sum, columns);
  record_.suggestion = suggestion_of(record_);
  return record_.kind != kind_before || record_.ranks.size() > ranks_before ||
         record_.tests.size() > tests_before;
}

}  // namespace kansoku::detect
