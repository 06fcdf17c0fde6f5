// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/watch_state.h"

#include <algorithm>
#include <cmath>

#include "detect/internal/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr std::size_t kEvidenceMax = 8;
constexpr std::size_t kRowsMax = 100;
constexpr double kShareOfBudget = 0.5, kReserve = 0.1;
constexpr double kOwnCostMin = 4, kOwnCostMax = 40;  // spreads; beyond it, more says no more
constexpr std::size_t kExcessesMax = 128;
constexpr double kShareOfStrength = 0.02;  // of the median excess of an incident's windows
constexpr std::size_t kWindowsToRename = 3;
constexpr double kStrongest = 2;  // of two ranks one is named if its excess is so much larger

}  // namespace

AlarmCounts choose_counts(const HealthyFlags& healthy, double correlation, double members,
                          double windows_per_day, double budget) {
  AlarmCounts out;
  const double trials = std::max(1.0, members) * windows_per_day;
  const double alpha = budget * kShareOfBudget * kReserve / trials / 2;  // two spans
  const auto count = [&](double flags, std::uint32_t windows, std::uint32_t least) {
    const double share = (flags + 0.5) / (healthy.points + 1);
    return std::clamp(smallest_k({share, correlation}, windows, alpha), least, windows);
  };
  out.of_short = count(healthy.clear, kShortWindows, 3);
  out.of_long = count(healthy.flags, kLongWindows, 6);
  const auto rate = [&](double flags, double clear) {
    const stats::BetaBinomial flagged{flags, correlation};
    return trials * (upper_share({clear, correlation}, out.of_short, kShortWindows) +
                     upper_share(flagged, kShortWindows, kShortWindows) +
                     upper_share(flagged, out.of_long, kLongWindows));
  };
  const ShareInterval flags = share_interval(healthy.flags, healthy.points),
                      clear = share_interval(healthy.clear, healthy.points);
  out.per_day = rate((healthy.flags + 0.5) / (healthy.points + 1),
                     (healthy.clear + 0.5) / (healthy.points + 1));
  out.low = rate(flags.low, clear.low);
  out.high = rate(flags.high, clear.high);
  return out;
}

OpenIncident::OpenIncident(const DetectorOptions& options, std::int64_t begin_ns)
    : last_ns(begin_ns) {
  record_.host = options.host;
  record_.job = options.job;
  record_.begin_ns = begin_ns;
}

OpenIncident::Part& OpenIncident::part_of(MemberKey key, const Member& member) {
  Part& part = parts_[key];
  part.rank = member.rank;
  part.pid = member.pid;
  return part;
}

void OpenIncident::add(MemberKey key, const Member& member, const Member::Recent& recent,
                       Scorer& scorer) {
  const JobModel::Parts& parts = scorer.model().parts();
  const auto contributions = scorer.explain(recent.row, kEvidenceMax);
  Part& part = part_of(key, member);
  part.sum.add(parts, recent.row, contributions);
  all_.add(parts, recent.row, contributions);
  if (!std::isnan(recent.score)) {
    part.excess += recent.score - parts.threshold;
    part.windows += 1;
    if (recent.score > parts.threshold && excesses_.size() < kExcessesMax)
      excesses_.push_back(recent.score - parts.threshold);
  }
  record_.score = std::max(record_.score, part.excess / std::max(1.0, part.windows));
  ++record_.window_count;
  last_ns = std::max(last_ns, recent.wall_ns);
  if (rows.size() < kRowsMax * recent.row.size())
    rows.insert(rows.end(), recent.row.begin(), recent.row.end());
}

bool OpenIncident::speaks_for_it(const Member::Recent& recent, double excess) const {
  if (recent.is_event || recent.is_beyond || excesses_.empty()) return true;
  return excess >= kShareOfStrength * stats::median(excesses_);
}

void OpenIncident::include(MemberKey key, const Member& member) {
  Part& part = part_of(key, member);
  part.is_included = part.is_alarmed = true;
}

void OpenIncident::include(MemberKey key, const Member& member, const PeerFinding& finding) {
  Part& part = part_of(key, member);
  part.is_included = true;
  ++part.peer_votes;
  part.sum.add(finding);
}

// Where ranks wait for each other all of them are slow; the one that the others wait for is the one
// whose own work costs more than that of its peers.
std::vector<MemberKey> OpenIncident::by_own_cost(std::span<const Column> columns,
                                                 std::size_t member_count) const {
  std::vector<std::pair<MemberKey, OwnCost>> costs;
  for (const auto& [key, part] : parts_) {
    std::vector<const Deviations*> peers;
    for (const auto& [other, peer] : parts_)
      if (other != key) peers.push_back(&peer.level);
    costs.emplace_back(key, own_cost(part.level, peers, columns));
  }
  // What is seen directly comes before what others' waiting says.
  for (const auto member : {&OwnCost::work, &OwnCost::waited_for}) {
    const auto cost_of = [&](const auto& entry) {
      return std::min(entry.second.*member, kOwnCostMax);
    };
    double most = 0;
    for (const auto& entry : costs)
      most = std::max(most, cost_of(entry));
    if (most < kOwnCostMin) continue;
    std::vector<MemberKey> out;
    for (const auto& entry : costs)
      if (2 * cost_of(entry) >= most) out.push_back(entry.first);
    if (2 * out.size() <= member_count) return out;
  }
  return {};
}

std::vector<MemberKey> OpenIncident::by_votes() const {
  std::vector<MemberKey> out;
  int most = 0;
  for (const auto& [key, part] : parts_)
    most = std::max(most, part.peer_votes);
  for (const auto& [key, part] : parts_)
    if (most > 0 && 2 * part.peer_votes >= most) out.push_back(key);
  return out;
}

std::vector<MemberKey> OpenIncident::by_score(std::size_t member_count) const {
  std::vector<MemberKey> out;
  for (const auto& [key, part] : parts_)
    if (part.is_alarmed) out.push_back(key);
  if (member_count == 2 && out.size() == 2) {
    const auto excess = [&](MemberKey key) {
      const Part& part = parts_.at(key);
      return part.excess / std::max(1.0, part.windows);
    };
    const double first = excess(out[0]), second = excess(out[1]);
    if (first > kStrongest * second) return {out[0]};
    if (second > kStrongest * first) return {out[1]};
    return {};
  }
  if (out.size() > std::max<std::size_t>(1, member_count / 4)) out.clear();
  return out;
}

std::vector<MemberKey> OpenIncident::named(std::span<const Column> columns,
                                           std::size_t member_count) const {
  if (member_count < 2) return by_votes();
  if (auto out = by_own_cost(columns, member_count); !out.empty()) return out;
  std::vector<const Deviations*> all;
  for (const auto& [key, part] : parts_)
    all.push_back(&part.level);
  if (is_between(all, columns)) return {};
  if (auto out = by_votes(); !out.empty()) return out;
  return by_score(member_count);
}

bool OpenIncident::update(std::span<const Column> columns, std::size_t member_count) {
  const std::string kind_before = record_.kind;
  const std::size_t ranks_before = record_.ranks.size(), tests_before = record_.tests.size();
  const std::vector<MemberKey> keys = named(columns, member_count);
  record_.ranks.clear();
  record_.pids.clear();
  EvidenceSum const* sum = &all_;
  for (const MemberKey key : keys) {
    const Part& part = parts_.at(key);
    if (part.rank >= 0) record_.ranks.push_back(part.rank);
    record_.pids.push_back(part.pid);
    if (!part.sum.empty() && keys.size() == 1) sum = &part.sum;
  }
  if (keys.empty() && member_count == 1)
    for (const auto& [key, part] : parts_)
      if (part.is_included && record_.pids.empty()) record_.pids.push_back(part.pid);
  record_.tests.assign(tests_.begin(), tests_.end());
  record_.evidence = sum->evidence(columns, kEvidenceMax);
  record_.kind =
      has_event ? "hardware_fault" : kind_of(*sum, columns, !keys.empty() && member_count > 1);
  if (record_.id.empty())
    record_.id = trace::incident_id(record_.host, record_.job, record_.begin_ns, record_.kind);
  record_.summary = summary_of(record_, *sum, columns);
  record_.suggestion = suggestion_of(record_);
  const bool is_same = record_.ranks == told_ranks_ && record_.pids == told_pids_;
  windows_since_named_ = is_same ? 0 : windows_since_named_ + 1;
  const bool is_told = record_.kind != kind_before || record_.ranks.size() > ranks_before ||
                       record_.tests.size() > tests_before ||
                       windows_since_named_ >= kWindowsToRename;
  if (!is_told) return false;
  told_ranks_ = record_.ranks;
  told_pids_ = record_.pids;
  windows_since_named_ = 0;
  return true;
}

}  // namespace kansoku::detect
