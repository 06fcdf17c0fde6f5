// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <map>
#include <tuple>

#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr int kShiftMax = 64;
constexpr std::size_t kTailCount = 512;  // elements compared for the shift

struct Key {
  trace::StringId name{};  // of the process group; empty: not known
  std::uint32_t group{0};  // those without a name are numbered by first use in their rank
  std::uint32_t op{0};
  std::uint64_t seq{0};
  friend auto operator<=>(const Key&, const Key&) = default;
};

// One rank's collective, issue and execution joined.
struct Part {
  Key key;
  Arrival arrival;
  std::uint64_t bytes{0};
  std::uint64_t group_size{0};  // 0: not known
  bool has_issue{false};
};

void join_execution(Part& part, const CollectiveEvent& event) {
  const bool first = !part.arrival.is_present;
  if (!part.has_issue) {
    part.arrival.arrive_ns =
        first ? event.time.begin_ns : std::min(part.arrival.arrive_ns, event.time.begin_ns);
  }
  part.arrival.end_ns =
      first ? event.time.end_ns : std::max(part.arrival.end_ns, event.time.end_ns);
  part.arrival.is_present = part.arrival.is_executed = true;
  part.arrival.is_open = part.arrival.is_open || event.is_open;
  part.bytes = std::max(part.bytes, event.bytes);
}

void join_issue(Part& part, const CollectiveEvent& event) {
  const bool first = !part.arrival.is_present;
  part.has_issue = true;
  part.arrival.arrive_ns = event.time.begin_ns;
  part.arrival.end_ns =
      first ? event.time.end_ns : std::max(part.arrival.end_ns, event.time.end_ns);
  part.arrival.is_present = true;
  part.arrival.is_open = part.arrival.is_open || event.is_open;
  part.bytes = std::max(part.bytes, event.bytes);
}

struct Group {
  trace::StringId name{};
  std::uint32_t number{0};
  std::uint64_t size{0};
};

// Names process groups, or numbers them by first use; executions without a group get that of the
// issue with their operation and sequence number that precedes them.
class Grouping {
 public:
  explicit Grouping(const std::vector<CollectiveEvent>& events) {
    for (const CollectiveEvent& event : events) {
      if (!event.has_pg) continue;
      const auto [found, is_new] = groups_.try_emplace(event.pg);
      if (is_new && event.group == trace::StringId{}) found->second.number = unnamed_count_++;
      // Memory of a group that was destroyed may be another one's.
      if (event.group != trace::StringId{}) found->second = {event.group, 0, event.group_size};
      if (event.is_issue)
        issues_[{event.op, event.seq}].push_back({event.time.begin_ns, found->second});
    }
  }

  Group group_of(const CollectiveEvent& event) const {
    if (event.has_pg && event.group != trace::StringId{}) return {event.group, 0, event.group_size};
    if (event.has_pg) return groups_.at(event.pg);
    const auto found = issues_.find({event.op, event.seq});
    if (found == issues_.end()) return {};
    Group group = found->second.front().second;
    for (const auto& [begin_ns, candidate] : found->second) {  // by begin: one a process group
      if (begin_ns <= event.time.begin_ns) group = candidate;
    }
    return group;
  }

 private:
  std::map<std::uint64_t, Group> groups_;
  std::uint32_t unnamed_count_{0};
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::pair<std::int64_t, Group>>>
      issues_;
};

// Joins by key. Two issues of one key cannot be told apart: such keys are dropped and counted.
std::vector<Part> parts_by_seq(const RankData& rank, std::size_t& ambiguous_count) {
  const Grouping grouping(rank.collectives);
  std::vector<std::pair<Key, const CollectiveEvent*>> keyed;
  std::map<trace::StringId, std::uint64_t> sizes;
  for (const CollectiveEvent& event : rank.collectives) {
    if (!event.has_seq) continue;
    const Group group = grouping.group_of(event);
    keyed.push_back({{group.name, group.number, event.op, event.seq}, &event});
    sizes[group.name] = group.size;
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Part> parts;
  for (std::size_t i = 0; i < keyed.size();) {
    Part part;
    part.key = keyed[i].first;
    part.group_size = sizes[part.key.name];
    std::size_t issue_count = 0;
    for (; i < keyed.size() && keyed[i].first == part.key; ++i) {
      const CollectiveEvent& event = *keyed[i].second;
      issue_count += event.is_issue ? 1 : 0;
      event.is_issue ? join_issue(part, event) : join_execution(part, event);
    }
    if (issue_count > 1) {
      ++ambiguous_count;
    } else {
      parts.push_back(part);
    }
  }
  return parts;
}

// Without sequence numbers: the k-th issue of an operation belongs to its first unused execution
// that begins later. The key is the position, filled in by the caller.
std::vector<Part> parts_by_order(const RankData& rank) {
  std::vector<Part> parts;
  std::map<std::uint32_t, std::vector<std::size_t>> waiting;  // op -> parts without an execution
  std::map<std::uint32_t, std::size_t> next;                  // op -> first of them still open
  for (const CollectiveEvent& event : rank.collectives) {
    auto& queue = waiting[event.op];
    std::size_t& head = next[event.op];
    while (!event.is_issue && head < queue.size() &&
           event.time.begin_ns - parts[queue[head]].arrival.arrive_ns > kIssueLeadMaxNs)
      ++head;
    if (event.is_issue || head >= queue.size()) {
      Part part;
      part.key.op = event.op;
      if (event.is_issue) queue.push_back(parts.size());
      event.is_issue ? join_issue(part, event) : join_execution(part, event);
      parts.push_back(part);
    } else {
      join_execution(parts[queue[head++]], event);
    }
  }
  return parts;
}

std::vector<TimedWord> words_of(const std::vector<Part>& parts) {
  std::vector<TimedWord> words;
  words.reserve(parts.size());
  for (const Part& part : parts)
    words.push_back({(part.bytes << 8) ^ part.key.op, part.arrival.end_ns});
  return words;
}

// Numbers the parts of every rank so that equal positions counted from the (shifted) end agree.
void number_by_order(std::vector<std::vector<Part>>& parts) {
  constexpr std::uint64_t kTop = std::uint64_t{1} << 40;  // positions count down from here
  const auto longest = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const std::vector<TimedWord> base = words_of(*longest);
  for (auto& rank : parts) {
    const int shift = best_shift(base, words_of(rank), kShiftMax);
    for (std::size_t i = 0; i < rank.size(); ++i) {
      const std::uint64_t from_end = rank.size() - i;
      rank[i].key.seq = kTop - from_end + static_cast<std::uint64_t>(kShiftMax + shift);
    }
  }
}

bool has_usable_seq(const JobData& job) {
  std::size_t count = 0;
  std::size_t with_seq = 0;
  for (const RankData& rank : job.ranks) {
    count += rank.collectives.size();
    for (const CollectiveEvent& event : rank.collectives)
      with_seq += event.has_seq ? 1 : 0;
  }
  return static_cast<double>(with_seq) >= kNearlyAllShare * static_cast<double>(count);
}

// Whoever was seen in a group, or all ranks where it is as large as the job.
class GroupMembers {
 public:
  explicit GroupMembers(const std::vector<std::vector<Part>>& parts) : rank_count_(parts.size()) {
    for (std::size_t r = 0; r < parts.size(); ++r) {
      for (const Part& part : parts[r]) {
        std::vector<bool>& members = members_[part.key.name];
        members.resize(rank_count_);
        if (part.group_size == 0 || part.group_size >= rank_count_)
          members.assign(rank_count_, true);
        members[r] = true;
      }
    }
  }
  [[nodiscard]] const std::vector<bool>& of(trace::StringId group) const {
    return members_.at(group);
  }

 private:
  std::size_t rank_count_;
  std::map<trace::StringId, std::vector<bool>> members_;
};

std::vector<Instance> assemble(const std::vector<std::vector<Part>>& parts) {
  const GroupMembers members(parts);
  std::map<Key, Instance> instances;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    for (const Part& part : parts[r]) {
      Instance& instance = instances[part.key];
      instance.ranks.resize(parts.size());
      instance.ranks[r] = part.arrival;
      instance.ranks[r].bytes = part.bytes;
      instance.op = part.key.op;
      instance.is_member = members.of(part.key.name);
      const auto known = static_cast<std::uint64_t>(
          std::count(instance.is_member.begin(), instance.is_member.end(), true));
      instance.unseen_count = part.group_size > known ? part.group_size - known : 0;
      instance.bytes = std::max(instance.bytes, part.bytes);
    }
  }
  std::vector<Instance> list;
  for (auto& [key, instance] : instances) {
    instance.first_ns = kTimeMaxNs;
    instance.is_complete = instance.is_of_all = true;
    for (std::size_t r = 0; r < instance.ranks.size(); ++r) {
      const Arrival& arrival = instance.ranks[r];
      const bool is_there = arrival.is_present && !arrival.is_open;
      instance.is_of_all = instance.is_of_all && instance.is_member[r];
      instance.is_complete = instance.is_complete && (is_there || !instance.is_member[r]);
      if (!arrival.is_present) continue;
      instance.first_ns = std::min(instance.first_ns, arrival.arrive_ns);
      instance.last_ns = std::max(instance.last_ns, arrival.arrive_ns);
    }
    list.push_back(std::move(instance));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Instance& a, const Instance& b) { return a.first_ns < b.first_ns; });
  return list;
}

void add_collective_notes(const Collectives& found, std::size_t ambiguous_count, JobData& job) {
  const auto partial_count = std::count_if(found.instances.begin(), found.instances.end(),
                                           [](const Instance& i) { return !i.is_complete; });
  if (found.by_order) {
    job.notes.emplace_back(words::kNoSequenceNumbers);
  }
  if (partial_count > 0) {
    job.notes.push_back(fmt::format(words::kNotSeenWhole, partial_count, found.instances.size()));
  }
  if (ambiguous_count > 0) {
    job.notes.push_back(fmt::format(words::kAmbiguous, ambiguous_count));
  }
}

}  // namespace

int best_shift(const std::vector<TimedWord>& base, const std::vector<TimedWord>& other,
               int shift_max) {
  struct Score {
    double agreement;
    double distance_ns;
    int shift;
  };
  std::vector<Score> scores;
  for (int shift = -shift_max; shift <= shift_max; ++shift) {
    const std::size_t skip_base = shift < 0 ? static_cast<std::size_t>(-shift) : 0;
    const std::size_t skip_other = shift > 0 ? static_cast<std::size_t>(shift) : 0;
    if (skip_base >= base.size() || skip_other >= other.size()) continue;
    const std::size_t count =
        std::min({base.size() - skip_base, other.size() - skip_other, kTailCount});
    std::size_t equal_count = 0;
    std::vector<double> distances_ns;
    for (std::size_t k = 1; k <= count; ++k) {
      const TimedWord& a = base[base.size() - skip_base - k];
      const TimedWord& b = other[other.size() - skip_other - k];
      equal_count += a.word == b.word ? 1 : 0;
      distances_ns.push_back(std::abs(static_cast<double>(a.end_ns - b.end_ns)));
    }
    scores.push_back({static_cast<double>(equal_count) / static_cast<double>(count),
                      stats::median(distances_ns), shift});
  }
  double best_agreement = 0;
  for (const Score& score : scores)
    best_agreement = std::max(best_agreement, score.agreement);
  // Repeating words agree at many shifts: among those, collectives end together in time.
  Score best{0, 1e300, 0};
  for (const Score& score : scores) {
    if (score.agreement < kShiftAgreementMin * best_agreement) continue;
    if (std::tuple(score.distance_ns, std::abs(score.shift)) <
        std::tuple(best.distance_ns, std::abs(best.shift)))
      best = score;
  }
  return best.shift;
}

Collectives match_collectives(JobData& job) {
  Collectives found;
  found.by_order = !has_usable_seq(job);
  std::size_t ambiguous_count = 0;
  std::vector<std::vector<Part>> parts;
  for (const RankData& rank : job.ranks)
    parts.push_back(found.by_order ? parts_by_order(rank) : parts_by_seq(rank, ambiguous_count));
  if (parts.empty()) return found;
  if (found.by_order) number_by_order(parts);
  found.instances = assemble(parts);
  add_collective_notes(found, ambiguous_count, job);
  return found;
}

}  // namespace kansoku::diagnose
