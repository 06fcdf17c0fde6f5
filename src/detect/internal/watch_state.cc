// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/watch_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "detect/internal/thresholds.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr std::size_t kEvidenceMax = 8;
constexpr std::size_t kRowsMax = 100;
constexpr std::size_t kExcessesMax = 128;
constexpr std::size_t kMarksMax = 128;  // windows of which one in some may stand out

}  // namespace

AlarmCounts choose_counts(const HealthyFlags& healthy, double correlation, double members,
                          double windows_per_day, double budget) {
  AlarmCounts out;
  const double trials = std::max(1.0, members) * windows_per_day;
  const double alpha = budget * kCountsShareOfBudget / trials / 2;  // two spans
  const auto count = [&](double flags, std::uint32_t windows, std::uint32_t least) {
    const double share = (flags + 0.5) / (healthy.points + 1);
    return std::clamp(smallest_k({share, correlation}, windows, alpha), least, windows);
  };
  out.of_short = count(healthy.clear, kShortWindows, kConfirmWindows);
  out.of_long = count(healthy.flags, kLongWindows, kOfLongMin);
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

Episode::Episode(std::uint64_t number, std::string job, std::int64_t begin_ns,
                 std::optional<SlowPace> slow)
    : last_ns(begin_ns), number_(number), job_(std::move(job)), slow_(slow) {
  facts_.begin_ns = begin_ns;
  facts_.has_effect = false;  // until one is seen
}

Episode::Part& Episode::part_of(MemberKey key, const Member& member) {
  Part& part = parts_[key];
  part.rank = member.rank;
  part.pid = member.pid;
  return part;
}

Episode::Mark* Episode::mark_of(Part& part, std::int64_t wall_ns) {
  const bool is_marked = !part.marks.empty() && part.marks.back().wall_ns == wall_ns;
  if (!is_marked && part.marks.size() >= kMarksMax) return nullptr;
  return is_marked ? &part.marks.back() : &part.marks.emplace_back(Mark{wall_ns});
}

void Episode::add_deviations(MemberKey key, const Member& member, const Member::Recent& recent,
                             const JobModel::Parts& model) {
  Part& part = part_of(key, member);
  part.level.add(model, recent.wall_ns, recent.row);
  part.has_event = part.has_event || recent.is_event;
  // A single feature beyond its cut flags windows below the threshold too.
  if (Mark* const mark = recent.is_flagged ? mark_of(part, recent.wall_ns) : nullptr)
    mark->excess = std::max(1.0, recent.score - model.threshold);
  if (!slow_ || part.paces.size() >= kWindowsKept) return;
  if (const double pace = recent.row[slow_->column]; !std::isnan(pace)) part.paces.push_back(pace);
}

void Episode::add(MemberKey key, const Member& member, const Member::Recent& recent,
                  Scorer& scorer) {
  const JobModel::Parts& parts = scorer.model().parts();
  const auto contributions = scorer.explain(recent.row, kEvidenceMax);
  Part& part = part_of(key, member);
  part.sum.add(parts, recent.wall_ns, recent.row, contributions);
  all_.add(parts, recent.wall_ns, recent.row, contributions);
  if (!std::isnan(recent.score)) {
    part.excess += recent.score - parts.threshold;
    part.windows += 1;
    if (recent.score > parts.threshold && excesses_.size() < kExcessesMax)
      excesses_.push_back(recent.score - parts.threshold);
  }
  facts_.score = std::max(facts_.score, part.excess / std::max(1.0, part.windows));
  ++facts_.window_count;
  last_ns = std::max(last_ns, recent.wall_ns);
  if (rows.size() < kRowsMax * recent.row.size())
    rows.insert(rows.end(), recent.row.begin(), recent.row.end());
}

bool Episode::speaks_for_it(const Member::Recent& recent, double excess) const {
  if (recent.is_event || recent.is_beyond || excesses_.empty()) return true;
  return excess >= kShareOfStrength * stats::median(excesses_);
}

void Episode::include(MemberKey key, const Member& member) {
  Part& part = part_of(key, member);
  part.is_included = part.is_alarmed = true;
}

void Episode::include(MemberKey key, const Member& member, const PeerFinding& finding) {
  Part& part = part_of(key, member);
  part.is_included = true;
  ++part.peer_votes;
  if (Mark* const mark = mark_of(part, member.recent.back().wall_ns)) mark->vote = 1;
  part.sum.add(finding);
}

stats::MemberSeries Episode::by_window(double Mark::*strength) const {
  std::map<std::int64_t, std::vector<double>> windows_of;
  std::size_t index = 0;
  for (const auto& [key, part] : parts_) {
    for (const Mark& mark : part.marks) {
      if (mark.*strength <= 0) continue;
      auto& values = windows_of[mark.wall_ns];
      values.resize(parts_.size());
      values[index] = mark.*strength;
    }
    ++index;
  }
  stats::MemberSeries out(parts_.size());
  for (const auto& [wall_ns, values] : windows_of)
    for (std::size_t m = 0; m < values.size(); ++m)
      out[m].push_back(values[m]);
  return out;
}

std::vector<MemberKey> Episode::beyond_chance(const std::vector<MemberKey>& keys,
                                              stats::MemberSeries values,
                                              const std::vector<MemberKey>& known) const {
  if (keys.empty()) return {};
  // Not looked at anew with each window: many looks would find by chance what one does not.
  for (std::vector<double>& one : values)
    one.resize(std::bit_floor(one.size()));
  const std::set<MemberKey> asked(keys.begin(), keys.end()),
      named_before(known.begin(), known.end());
  std::vector<std::size_t> suspects;
  std::vector<MemberKey> keys_of;
  std::size_t index = 0;
  for (const auto& [key, part] : parts_) {
    if (asked.count(key) != 0 || named_before.count(key) != 0) {
      suspects.push_back(index);
      keys_of.push_back(key);
    }
    ++index;
  }
  const std::vector<double> chances = stats::chances_of_blocks(values, suspects);
  std::vector<MemberKey> out;
  for (std::size_t i = 0; i < suspects.size(); ++i)
    if (asked.count(keys_of[i]) != 0 && chances[i] <= stats::kBlameChanceMax)
      out.push_back(keys_of[i]);
  return out;
}

// If ranks wait for each other, all of them are slow; the one that the others wait for is the one
// whose own work costs more than that of its peers.
std::optional<std::vector<MemberKey>> Episode::by_own_cost(std::span<const Column> columns,
                                                           std::size_t member_count) const {
  std::vector<MemberKey> keys;
  std::vector<MemberLevels> levels;
  std::set<std::int64_t> windows_of;
  for (const auto& [key, part] : parts_) {
    keys.push_back(key);
    levels.push_back({&part.level, &part.before});
    part.level.add_times_to(windows_of);
  }
  const std::vector<OwnCost> costs = own_costs(levels, columns);
  // Direct observations come before the evidence of others' waiting.
  for (const auto member : {&OwnCost::work, &OwnCost::waited_for}) {
    double most = 0;
    for (const OwnCost& cost : costs)
      most = std::max(most, std::min(cost.*member, kOwnCostMax));
    if (most < kOddSpreads) continue;
    std::vector<MemberKey> out, compared;
    for (std::size_t m = 0; m < keys.size(); ++m) {
      if (2 * std::min(costs[m].*member, kOwnCostMax) < most) continue;
      const bool is_seen = member == &OwnCost::work && 2 * costs[m].seen >= most;
      (is_seen ? out : compared).push_back(keys[m]);
    }
    if (2 * (out.size() + compared.size()) > member_count) continue;
    if (compared.empty()) return out;
    stats::MemberSeries values(keys.size());
    for (const std::int64_t wall_ns : windows_of) {
      std::vector<OwnCost> now = own_costs(levels, columns, wall_ns);
      for (OwnCost& cost : now)
        cost.*member = std::min(cost.*member, kOwnCostMax);
      const bool is_odd = std::any_of(
          now.begin(), now.end(), [&](const OwnCost& cost) { return cost.*member >= kOddSpreads; });
      for (std::size_t m = 0; is_odd && m < keys.size(); ++m)
        values[m].push_back(now[m].*member);
    }
    for (const MemberKey key : beyond_chance(compared, std::move(values), out))
      out.push_back(key);
    std::sort(out.begin(), out.end());
    return out;
  }
  return std::nullopt;
}

std::vector<MemberKey> Episode::by_event(std::size_t member_count) const {
  std::vector<MemberKey> out;
  for (const auto& [key, part] : parts_)
    if (part.has_event) out.push_back(key);
  if (2 * out.size() > member_count) out.clear();
  return out;
}

std::vector<MemberKey> Episode::by_votes() const {
  std::vector<MemberKey> out;
  int most = 0;
  for (const auto& [key, part] : parts_)
    most = std::max(most, part.peer_votes);
  for (const auto& [key, part] : parts_)
    if (most > 0 && 2 * part.peer_votes >= most) out.push_back(key);
  return out;
}

std::vector<MemberKey> Episode::by_score(std::size_t member_count) const {
  std::vector<MemberKey> out;
  for (const auto& [key, part] : parts_)
    if (part.is_alarmed) out.push_back(key);
  if (member_count == 2 && out.size() == 2) {
    const auto excess = [&](MemberKey key) {
      const Part& part = parts_.at(key);
      return part.excess / std::max(1.0, part.windows);
    };
    const double first = excess(out[0]), second = excess(out[1]);
    if (first > kTimesWorse * second) return {out[0]};
    if (second > kTimesWorse * first) return {out[1]};
    return {};
  }
  if (out.size() > std::max<std::size_t>(1, member_count / 4)) out.clear();
  return out;
}

/// True if the job suffers: it is slower, stands still, loses memory or hardware. An effect that
/// cannot be seen, since the job's pace is not known, is assumed.
bool Episode::has_effect_on_job(std::span<const Column> columns, const EvidenceSum& sum) const {
  if (has_event || has_test("job") || !slow_) return true;
  if (is_harm_by_itself(sum, columns)) return true;
  return std::any_of(parts_.begin(), parts_.end(), [&](const auto& entry) {
    const std::vector<double>& paces = entry.second.paces;
    return !paces.empty() && stats::median(paces) > slow_->from;
  });
}

std::vector<MemberKey> Episode::named(std::span<const Column> columns,
                                      std::size_t member_count) const {
  if (member_count < 2) return by_votes();
  if (auto out = by_own_cost(columns, member_count)) return *std::move(out);
  if (auto out = by_event(member_count); !out.empty()) return out;
  std::vector<const Deviations*> all;
  for (const auto& [key, part] : parts_)
    all.push_back(&part.level);
  if (is_between(all, columns)) return {};
  if (auto out = beyond_chance(by_votes(), by_window(&Mark::vote)); !out.empty()) return out;
  return beyond_chance(by_score(member_count), by_window(&Mark::excess));
}

bool Episode::update(std::span<const Column> columns, std::size_t member_count) {
  const trace::IncidentKind kind_before = facts_.kind;
  const bool had_effect = facts_.has_effect;
  const std::size_t ranks_before = facts_.ranks.size(), tests_before = facts_.tests.size();
  const std::vector<MemberKey> keys = named(columns, member_count);
  facts_.ranks.clear();
  facts_.pids.clear();
  EvidenceSum const* sum = &all_;
  for (const MemberKey key : keys) {
    const Part& part = parts_.at(key);
    if (part.rank >= 0) facts_.ranks.push_back(part.rank);
    facts_.pids.push_back(part.pid);
    if (!part.sum.empty() && keys.size() == 1) sum = &part.sum;
  }
  if (keys.empty() && member_count == 1)
    for (const auto& [key, part] : parts_)
      if (part.is_included && facts_.pids.empty()) facts_.pids.push_back(part.pid);
  facts_.tests.assign(tests_.begin(), tests_.end());
  facts_.evidence = sum->evidence(columns, kEvidenceMax);
  const bool is_of_one = keys.size() == 1 || member_count == 1;
  facts_.kind = has_event ? trace::IncidentKind::kHardwareFault
                          : kind_of(*sum, columns, !keys.empty() && member_count > 1, is_of_one);
  // An effect seen once stays, whatever later windows say.
  facts_.has_effect = facts_.has_effect || has_effect_on_job(columns, *sum);
  facts_.summary = summary_of(facts_, *sum, columns);
  facts_.suggestion = suggestion_of(job_, facts_);
  const bool is_same = facts_.ranks == told_ranks_ && facts_.pids == told_pids_;
  windows_since_named_ = is_same ? 0 : windows_since_named_ + 1;
  const bool is_worth_it = !is_told_ || facts_.kind != kind_before ||
                           facts_.has_effect != had_effect || facts_.ranks.size() > ranks_before ||
                           facts_.tests.size() > tests_before ||
                           windows_since_named_ >= kConfirmWindows;
  if (!is_worth_it) return false;
  is_told_ = true;
  told_ranks_ = facts_.ranks;
  told_pids_ = facts_.pids;
  windows_since_named_ = 0;
  return true;
}

}  // namespace kansoku::detect
